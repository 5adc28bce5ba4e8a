// The list of problems at the top of the first view: those of all daemons, with cause and remedy.

import { ask, query } from "./api.js";
import { h, link, mood, section, to } from "./dom.js";
import { listPath } from "./jobs.js";
import { button, confirm } from "./orders.js";
import { moodOf, number, plural, span, when } from "./words.js";

// Maximum names in a line.
const NAMES_MAX = 3;

// Maximum problems expanded on a phone.
const OPEN_MAX = 3;

// The age from which another daemon's report is stale: each reports three times a minute.
const OLD_S = 60;

const placeOfPool = ({ subject }) => [to("pools", subject), "Show the pool"];
// Links to the subjects of problems, by the first word of their kind.
const PLACES = {
  pool: placeOfPool,
  cell: placeOfPool,
  no: () => ["#/pools", "Show the pools"],
  replications: ({ subject }) => [listPath({ state: "crashing", reason: subject }), "Show these replications"],
  daemon: ({ subject }) => [listPath({ daemon: subject }), "Show its replications"],
};

// Problems of the fleet, no matter which daemon reports them.
const OF_ALL = /^(replications_failing|daemon_gone)$/;

export const words = ({ kind }) => kind.replaceAll("_", " ");

// Problems of several subjects with the same cause share a line; so do those of one subject on several daemons, even
// if the causes have different numbers. The worst come first; among equal ones, this daemon's.
export function lines({ daemons }) {
  const found = new Map();
  const all = daemons.flatMap(({ daemon, problems }, index) => problems.map((problem) => ({ ...problem, daemon, isOwn: index === 0 })));
  const weight = ({ severity, count }) => (severity === "critical" ? Number.MAX_SAFE_INTEGER : 0) + count;
  for (const problem of all.toSorted((one, other) => weight(other) - weight(one))) {
    const { kind, severity, cause, subject, daemon } = problem;
    const key = JSON.stringify([kind, severity, cause]);
    const alike = JSON.stringify([kind, severity, subject, cause.replace(/\d+/g, "0")]);
    const line = found.get(key) ?? found.get(alike) ?? { ...problem, key, subjects: [], daemons: [] };
    if (!line.subjects.includes(subject)) line.subjects.push(subject);
    if (!line.daemons.includes(daemon)) line.daemons.push(daemon);
    found.set(key, line);
    found.set(alike, line);
  }
  return [...new Set(found.values())];
}

// The number of problems.
export const countOf = (lines) => lines.reduce((sum, { subjects }) => sum + subjects.length, 0);

// The daemons that have the problem; empty if only this one has it, or if it is a problem of the fleet.
export function whose({ kind, daemons, isOwn }) {
  if (OF_ALL.test(kind)) return "";
  if (daemons.length > 1) return plural(daemons.length, "daemon");
  return isOwn ? "" : daemons[0];
}

function names(subjects) {
  const shown = subjects.slice(0, NAMES_MAX).join(", ");
  return subjects.length > NAMES_MAX ? `${shown} and ${number(subjects.length - NAMES_MAX)} more` : shown;
}

// Losses are shown until acknowledged.
const LOSSES = ["documents_refused", "records_dropped"];

function acknowledge({ kind, subjects, cause }, again) {
  const subject = subjects.length === 1 ? subjects[0] : null;
  confirm({
    title: `Acknowledge ${words({ kind })}`, verb: "Acknowledge", done: again,
    text: `${names(subjects)}: ${cause}. It is no longer reported until more is lost.`,
    run: () => ask(query(`/_health/${kind}`, { subject }), "DELETE"),
  });
}

// Commands between backquotes can be copied.
const commands = (remedy) => remedy.split("`").map((part, at) => (at % 2 === 1 ? h("code", null, part) : part));

function shown(line, isOpen, again) {
  const at = whose(line);
  const [path, text] = (line.subjects.length === 1 && (line.isOwn || OF_ALL.test(line.kind)) && PLACES[line.kind.split("_")[0]]?.(line)) || [];
  return h("li", { "data-key": line.key }, h("details", { open: isOpen },
    h("summary", null, h("span", { class: "what" }, mood(words(line), moodOf(line.severity)), " ", h("b", null, names(line.subjects)), at && ` at ${at}`),
      // The subject, here a reason, is shown before the cause, and not repeated in it.
      h("span", { class: "cause" }, line.cause.replace(` with '${line.subject}'`, "")), mood(when(line.since), "quiet")),
    h("p", null, "What to do: ", commands(line.remedy), path && [" · ", link(path, text)], at && line.daemons.length > 1 && ` · At ${line.daemons.join(", ")}`),
    again && line.isOwn && LOSSES.includes(line.kind) && h("p", { class: "orders" }, button("Acknowledge", () => acknowledge(line, again)))));
}

function notes({ daemons }) {
  return daemons.flatMap(({ daemon, status, omitted, age_s: age }) => [
    status === "unknown" && `${daemon} has not reported its problems.`,
    age >= OLD_S && `The report of ${daemon} is ${span(age * 1000)} old.`,
    omitted > 0 && `${daemon} has ${plural(omitted, "further problem")}.`,
  ]).filter(Boolean).map((text) => h("p", { class: "quiet" }, text));
}

// `again` reloads everything after an order; absent for visitors who may give none.
export function problemsOf(health, again) {
  const all = lines(health);
  const unknown = notes(health);
  if (all.length === 0) return section("Problems", null, h("p", { class: "good" }, "No problem is known."), unknown);
  // On a phone, many problems are collapsed so that more fit; a touch expands one.
  const isOpen = all.length <= OPEN_MAX || matchMedia("(width >= 700px)").matches;
  return section("Problems", plural(countOf(all), "problem"), h("ol", { id: "problems" }, all.map((line) => shown(line, isOpen, again))), unknown);
}
