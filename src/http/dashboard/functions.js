// What functions cost: the list, and one function.

import { ask, query, remembering } from "./api.js";
import { choiceField, facts, filterForm, h, link, mood, searchField, searched, section, table, to } from "./dom.js";
import { number, plural, span, took } from "./words.js";

const SHOWN_MAX = 50;
// Maximum functions of a period that are searched.
const SCANNED_MAX = 2000;

const costs = remembering(2_000);

const mark = (count, kind) => mood(number(count), count > 0 ? kind : "");

// The costs: the name to sort by, the heading, and the value of a row.
const COSTS = [
  ["calls", "Calls", (row) => row.calls],
  ["errors", "Errors", (row) => mark(row.errors, "warn")],
  ["kills", "Kills", (row) => mark(row.kills, "bad")],
  ["wait", "Wait", (row) => took(row.wait_us)],
  ["run", "Run", (row) => took(row.run_us)],
  ["p50", "p50", (row) => took(row.run_p50_us)],
  ["p99", "p99", (row) => took(row.run_p99_us)],
  ["cpu", "CPU", (row) => took(row.cpu_us)],
  ["bytes", "Bytes", (row) => row.bytes],
];
const cells = (row, shown) => shown.map(([, , value]) => value(row));

// What the functions of each database cost.
export function costTable(id, rows) {
  const shown = COSTS.filter(([name]) => !name.startsWith("p"));
  const columns = [["Database", "first text"], ...shown.map(([, text]) => [text, "number"])];
  return table(id, columns, rows.map((row) => [`${row.db}`, row.db ?? "none", ...cells(row, shown)]));
}

// With `sortBy`, a click on a heading sorts by it; without, headings are plain text.
export function functionsTable({ seconds, functions }, sort, sortBy) {
  const heading = ([name, text]) => [sortBy ? h("button", { type: "button", "data-sort": name, onclick: () => sortBy(name) }, text) : text, "number", name === sort];
  const columns = [["Function", "first text"], ["Database", "first text"], ["Design document", "text"], ...COSTS.map(heading)];
  return table("functions", columns, functions.map((row) => [
    JSON.stringify([row.db, row.ddoc, row.function]),
    link(to("functions", row.db ?? "", row.ddoc ?? "", row.function), row.function), row.db, row.ddoc, ...cells(row, COSTS),
  ]), `No function was called ${lately(seconds)}.`);
}

export const lately = (seconds) => `in the last ${span(Math.ceil(seconds) * 1000)}`;

const filterOf = (params) => ({ period: params.get("period") ?? "minute", sort: params.get("sort") ?? "run", match: params.get("match") ?? "" });

export const list = {
  title: () => "Functions",
  load({ params }) {
    const { period, sort, match } = filterOf(params);
    return costs(query("/_functions", { period, sort, limit: match ? SCANNED_MAX : SHOWN_MAX }));
  },
  show(_, { seconds, total_rows: total, functions }, { params, go }) {
    const filter = filterOf(params);
    const choose = (change) => go(query("#/functions", { ...filter, ...change }));
    const found = functions.filter((row) => [row.db, row.ddoc, row.function].some(searched(filter.match)));
    const shown = found.slice(0, SHOWN_MAX);
    const many = filter.match ? found.length : total;
    return section("Functions", `${plural(many, "function")} ${lately(seconds)}` + (many > shown.length ? `; ${shown.length} are shown` : ""),
      filterForm(
        choiceField("Cost of the last", "period", ["minute", "hour"], filter.period, (period) => choose({ period })),
        searchField("Search", { id: "function-match", value: filter.match, placeholder: "function, database, design document" }, (match) => choose({ match })),
        mood("Click a number's heading to sort by it.", "quiet")),
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
    return { minute, hour, procs: procs.filter(isIt) };
  },
  show(_, { minute, hour, procs }, { names: [db, ddoc] }) {
    const cost = ({ period, seconds, row }) => section(`Last ${period}`, lately(seconds), row === undefined ? h("p", { class: "quiet" }, "It was not called, or others cost much more.") :
      facts(COSTS.map(([, name, value]) => [name.replace(/^p/, "Run, p"), value(row)])));
    return [
      section("Where it is", null, facts([["Database", db], ["Design document", ddoc]])),
      cost(minute), cost(hour),
      section("Running now", plural(procs.length, "process", "processes"), table("procs", [["Pool", "first"], ["Process", "first"], ["For", "number"]],
        procs.map((proc) => [proc.name, link(to("pools", proc.pool), proc.pool), proc.name, span(proc.state_ms)]), "Not running now.")),
    ];
  },
};
