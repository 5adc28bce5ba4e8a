// What functions cost: the list, and one function.

import { ask, query, remembering } from "./api.js";
import { facts, h, link, mood, section, table, to } from "./dom.js";
import { number, plural, span, took } from "./words.js";

const SHOWN_MAX = 50;
// Maximum functions of a period that are searched.
const SCANNED_MAX = 2000;

const costs = remembering(2_000, (path) => ask(path));
const SORTS = [["calls", "Calls"], ["errors", "Errors"], ["kills", "Kills"], ["wait", "Wait"], ["run", "Run"], ["p50", "p50"], ["p99", "p99"], ["cpu", "CPU"], ["bytes", "Bytes"]];

const mark = (count, kind) => mood(number(count), count > 0 ? kind : "");

// What the functions of each database cost.
export function costTable(id, rows) {
  const columns = [["Database", "first text"], ...["Calls", "Errors", "Kills", "Wait", "Run", "CPU", "Bytes"].map((name) => [name, "number"])];
  return table(id, columns, rows.map((row) => ({
    key: `${row.db}`,
    cells: [row.db ?? "none", row.calls, mark(row.errors, "warn"), mark(row.kills, "bad"), took(row.wait_us), took(row.run_us), took(row.cpu_us), row.bytes],
  })), "");
}

// With `sortBy`, a click on a heading sorts by it; without, headings are plain text.
export function functionsTable({ seconds, functions }, sort, sortBy) {
  const heading = ([name, text]) => [sortBy ? h("button", { type: "button", "data-sort": name, onclick: () => sortBy(name) }, text) : text, "number", name === sort];
  const columns = [["Function", "first text"], ["Database", "first text"], ["Design document", "text"], ...SORTS.map(heading)];
  return table("functions", columns, functions.map((row) => ({
    key: JSON.stringify([row.db, row.ddoc, row.function]),
    cells: [link(to("functions", row.db ?? "", row.ddoc ?? "", row.function), row.function), row.db, row.ddoc, row.calls,
      mark(row.errors, "warn"), mark(row.kills, "bad"),
      took(row.wait_us), took(row.run_us), took(row.run_p50_us), took(row.run_p99_us), took(row.cpu_us), row.bytes],
  })), `No function was called ${lately(seconds)}.`);
}

export const lately = (seconds) => `in the last ${span(Math.ceil(seconds) * 1000)}`;

export const list = {
  title: () => "Functions",
  load({ params }) {
    const match = params.get("match") ?? "";
    return costs(query("/_functions", { period: params.get("period") ?? "minute", sort: params.get("sort") ?? "run", limit: match ? SCANNED_MAX : SHOWN_MAX }));
  },
  show(_, { seconds, total_rows: total, functions }, { params, go }) {
    const filter = { period: params.get("period") ?? "minute", sort: params.get("sort") ?? "run", match: params.get("match") ?? "" };
    const choose = (change) => go(query("#/functions", { ...filter, ...change }));
    const wanted = filter.match.toLowerCase();
    const found = functions.filter((row) => [row.db, row.ddoc, row.function].some((text) => text?.toLowerCase().includes(wanted)));
    const shown = found.slice(0, SHOWN_MAX);
    const many = filter.match ? found.length : total;
    const option = (name) => h("option", { value: name, selected: filter.period === name }, name);
    return section("Functions", `${plural(many, "function")} ${lately(seconds)}` + (many > shown.length ? `; ${shown.length} are shown` : ""),
      h("form", { class: "filter", role: "search", onsubmit: (event) => event.preventDefault() },
        h("label", null, "Cost of the last", h("select", { id: "period", onchange: (event) => choose({ period: event.target.value }) }, ["minute", "hour"].map(option))),
        h("label", null, "Search", h("input", { id: "function-match", type: "search", value: filter.match, placeholder: "function, database, design document", oninput: (event) => choose({ match: event.target.value }) })),
        h("span", { class: "quiet" }, "Click a number's heading to sort by it.")),
      functionsTable({ seconds, functions: shown }, filter.sort, (sort) => choose({ sort })));
  },
};

export const one = {
  title: (names) => `Function ${names[2] ?? ""}`,
  async load({ names: [db, ddoc, name] }) {
    const isIt = (row) => (row.db ?? "") === db && (row.ddoc ?? "") === ddoc && row.function === name;
    const of = async (period) => {
      const page = await ask(query("/_functions", { period, limit: SCANNED_MAX }));
      return { period, seconds: page.seconds, row: page.functions.find(isIt) };
    };
    const [minute, hour, { procs }] = await Promise.all([of("minute"), of("hour"), ask("/_procs")]);
    return { minute, hour, procs: procs.filter((proc) => isIt({ ...proc, function: proc.function })) };
  },
  show(_, { minute, hour, procs }, { names: [db, ddoc] }) {
    const cost = ({ period, seconds, row }) => section(`Last ${period}`, lately(seconds), row === undefined ? h("p", { class: "quiet" }, "It was not called, or others cost much more.") : facts([
      ["Calls", row.calls], ["Errors", mood(number(row.errors), row.errors > 0 ? "warn" : "")], ["Kills", mood(number(row.kills), row.kills > 0 ? "bad" : "")],
      ["Wait", took(row.wait_us)], ["Run", took(row.run_us)], ["Run, p50", took(row.run_p50_us)], ["Run, p99", took(row.run_p99_us)], ["CPU", took(row.cpu_us)], ["Bytes", row.bytes]]));
    return [
      section("Where it is", null, facts([["Database", db], ["Design document", ddoc]])),
      cost(minute), cost(hour),
      section("Running now", plural(procs.length, "process", "processes"), table("procs", [["Pool", "first"], ["Process", "first"], ["For", "number"]],
        procs.map((proc) => ({ key: proc.name, cells: [link(to("pools", proc.pool), proc.pool), proc.name, span(proc.state_ms)] })), "Not running now.")),
    ];
  },
};
