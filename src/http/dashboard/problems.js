// The list of problems, with which the first view begins: what is wrong, why, and what to do.

import { h, link, mood, section, to } from "./dom.js";
import { listPath } from "./jobs.js";
import { moodOf, number, plural, when } from "./words.js";

// Names that a line has.
const NAMES_MAX = 3;

// Where what a problem is about is shown.
const PLACES = {
  pool: ({ subject }) => [to("pools", subject), "Show the pool"],
  cell: ({ subject }) => [to("pools", subject), "Show the pool"],
  no: () => ["#/pools", "Show the pools"],
  replications: ({ subject }) => [listPath({ state: "crashing", reason: subject }), "Show these replications"],
  daemon: ({ subject }) => [listPath({ daemon: subject }), "Show its replications"],
};

export const words = ({ kind }) => kind.replaceAll("_", " ");

// What holds for several, for the same cause, is one line: the worst first, as the service has them.
function lines(problems) {
  const found = new Map();
  for (const problem of problems) {
    const key = JSON.stringify([problem.kind, problem.severity, problem.cause]);
    const line = found.get(key);
    if (line) line.subjects.push(problem.subject);
    else found.set(key, { ...problem, key, subjects: [problem.subject] });
  }
  return [...found.values()];
}

function names(subjects) {
  const shown = subjects.slice(0, NAMES_MAX).join(", ");
  return subjects.length > NAMES_MAX ? `${shown} and ${number(subjects.length - NAMES_MAX)} more` : shown;
}

// A reason stands before it.
const causeOf = ({ cause, subject }) => cause.replace(` with '${subject}'`, "");

function shown(line, isOpen) {
  const [path, text] = (line.subjects.length === 1 && PLACES[line.kind.split("_")[0]]?.(line)) || [];
  return h("li", { "data-key": line.key }, h("details", { open: isOpen },
    h("summary", null, h("span", { class: "what" }, mood(words(line), moodOf(line.severity)), " ", h("b", null, names(line.subjects))),
      h("span", { class: "cause" }, causeOf(line)), h("span", { class: "quiet" }, when(line.since))),
    h("p", null, `What to do: ${line.remedy}`, path && [" · ", link(path, text)])));
}

export function problemsOf({ problems }) {
  if (problems.length === 0) return section("Problems", null, h("p", { class: "good" }, "No problem is known."));
  // On a phone a line is opened by a touch, so that more of them fit.
  const isOpen = matchMedia("(width >= 700px)").matches;
  return section("Problems", plural(problems.length, "problem"), h("ol", { id: "problems" }, lines(problems).map((line) => shown(line, isOpen))));
}
