// Pools and their processes: the list, one pool, and the orders to them.

import { ask, query } from "./api.js";
import * as charts from "./charts.js";
import { facts, filterForm, h, link, mood, pages, searchField, searched, section, table, to } from "./dom.js";
import { button, confirm } from "./orders.js";
import { bytes, cellOfPool, holderOf, number, plural, span, stateOfPool, took } from "./words.js";

const PAGE = 50;
const PROCS_MAX = 200;

const path = (name) => `/_pools/${encodeURIComponent(name)}`;
export const poolLink = (name) => link(to("pools", name), name);

function inUse({ used, hard_limit: limit }) {
  const text = `${used} of ${limit}`;
  return h("span", { class: "use" },
    h("meter", { min: 0, max: Math.max(limit, 1), value: used, title: text, "aria-label": `${text} in use` }), ` ${text}`);
}

const stateOfProc = ({ state }) => mood(state, state === "idle" ? "quiet" : "");
const pidOf = ({ os_pid: pid }) => (pid == null ? "inside" : String(pid));

export function poolsTable(pools) {
  const columns = [["Pool", "first"], ["State", "first text"], ["Language"], ["Group"], ["In use"], ["Free", "number"],
    ["Opening", "number"], ["Stopping", "number"], ["Waiting", "number"], ["Longest wait", "number"], ["Cell"]];
  return table("pools", columns, pools.map((pool) => [
    `${pool.name} ${pool.removing ?? ""}`,
    poolLink(pool.name), stateOfPool(pool), pool.language, pool.group, inUse(pool), pool.free, pool.opening || "", pool.stopping || "",
    pool.waiting || "", pool.waiting > 0 ? span(pool.longest_wait_ms) : "", cellOfPool(pool),
  ]), "No pool has been used yet.");
}

// Adds a pool's worst problem to it; a problem of its processes precedes one of its cell.
function withProblem(pool, problems) {
  const worst = (kinds) => problems.find(({ kind, subject }) => subject === pool.name && kind.startsWith(kinds));
  return { ...pool, problem: worst("pool_") ?? worst("cell_") };
}

// Pools with a critical problem first, then those that are throttled, failed, have waiters, are under stress, have
// another problem, or lack cell layers; then busy ones. Each has its worst problem added.
export function byTrouble({ status: { pools }, health: { daemons: [{ problems }] } }) {
  const signs = ({ problem, throttled_ms, failure, sandbox, waiting, stressed_ms, used }) => [problem?.severity === "critical", throttled_ms != null, failure != null || sandbox?.error != null,
    waiting > 0, stressed_ms != null, problem?.kind.startsWith("pool_") ?? false, Object.keys(sandbox?.missing ?? {}).length > 0, used > 0];
  const weight = (pool) => signs(pool).reduce((sum, sign) => 2 * sum + sign, 0);
  return pools.map((pool) => withProblem(pool, problems)).toSorted((one, other) => weight(other) - weight(one) || one.name.localeCompare(other.name));
}

// The processes of these pools, whose form is that of `/_status`.
export function procsSection(pools) {
  const procs = pools.flatMap((pool) => pool.procs.map((proc) => [pool.name, proc]));
  const left = procs.length - PROCS_MAX;
  const columns = [["Pool", "first"], ["State", "first"], ["Database", "first"], ["PID", "number"], ["Client"], ["Design documents", "number"],
    ["Uses", "number"], ["Age", "number"], ["Idle", "number"]];
  return h("details", { "data-key": "procs-list", id: "procs-list" },
    h("summary", null, h("h2", null, "Processes ", h("small", null, plural(procs.length, "process", "processes") + (left > 0 ? `; ${number(left)} are not shown` : "")))),
    table("procs", columns, procs.slice(0, PROCS_MAX).map(([pool, proc]) => [
      proc.name,
      poolLink(pool), stateOfProc(proc), proc.db, pidOf(proc),
      holderOf(proc.holder), proc.ddocs, proc.uses, span(proc.age_ms), proc.state === "idle" ? span(proc.idle_ms) : "",
    ]), "No process runs."));
}

export const list = {
  title: () => "Pools",
  load: () => charts.load(),
  show(state, series, { params, go }) {
    const pools = byTrouble(state);
    const match = params.get("match") ?? "", skip = Number(params.get("skip") ?? 0);
    const found = pools.filter((pool) => [pool.name, pool.language, pool.group].some(searched(match)));
    const shown = found.slice(skip, skip + PAGE);
    return [
      charts.draw(series, "lent", "waiting", "waits"),
      section("Pools", found.length === pools.length ? plural(pools.length, "pool") : `${number(found.length)} of ${plural(pools.length, "pool")}`,
        filterForm(searchField("Search", { id: "pool-match", value: match, placeholder: "name, language, group" }, (match) => go(query("#/pools", { match })))),
        poolsTable(shown), pages(found.length, skip, PAGE, (at) => query("#/pools", { match, skip: at }))),
      procsSection(shown),
    ];
  },
};

// ---- one pool ---------------------------------------------------------------------------------

// The limits that can be changed: key, label, attributes of the input.
const LIMITS = [["max", "Maximum processes", { min: 1, required: true }], ["min_free", "Kept free", { min: 0, required: true }], ["queue_max", "Maximum waiting requests", { min: 0 }]];

function changeLimits(pool, again) {
  confirm({
    title: `Change the limits of ${pool.name}`, verb: "Change", done: again,
    text: `They apply to the pool ${pool.name} at once, until the service restarts. To keep them, set them in the configuration.`,
    fields: LIMITS.map(([key, label, attributes]) => [key, label, pool.settings[key] ?? (key === "max" ? pool.hard_limit : null), attributes]),
    run: (values) => {
      const given = Object.entries(values).filter(([, value]) => value !== "");
      return ask(path(pool.name), "PUT", Object.fromEntries(given.map(([key, value]) => [key, Number(value)])));
    },
  });
}

function unthrottle(pool, again) {
  confirm({
    title: `Unthrottle ${pool.name}`, verb: "Unthrottle", done: again,
    text: `The pool ${pool.name} starts processes again now instead of in ${span(pool.throttled_ms)}.`,
    run: () => ask(`${path(pool.name)}/_unthrottle`, "POST"),
  });
}

function end(proc, again) {
  const works = proc.state === "running" || proc.state === "teaching";
  confirm({
    title: `End ${proc.name}`, verb: "End it", danger: true, done: again,
    text: `The process ${proc.name}${proc.os_pid == null ? "" : ` (PID ${proc.os_pid})`} ` +
      (works ? `is killed. What it runs${proc.function ? `, ${proc.function}` : ""}, fails.` : "is asked to end, and killed if it does not."),
    run: () => ask(`/_procs/${proc.name.split("/").map(encodeURIComponent).join("/")}`, "DELETE"),
  });
}

function workTable(procs, mayOperate, again) {
  const columns = [["State", "first"], ["Function", "first text"], ["Database", "first"], ["Process"], ["PID", "number"], ["For", "number"], ["Client"],
    ["CPU", "number"], ["Memory", "number"], ["Uses", "number"], ["Age", "number"]];
  return table("procs", columns, procs.map((proc) => {
    const called = proc.function == null ? "" : link(to("functions", proc.db ?? "", proc.ddoc ?? "", proc.function), proc.function);
    const name = mayOperate ? h("span", { class: "named" }, proc.name, " ", button("End", () => end(proc, again), { "aria-label": `End ${proc.name}` })) : proc.name;
    return [proc.name, stateOfProc(proc), called, proc.db, name, pidOf(proc), span(proc.state_ms),
      holderOf(proc.holder), proc.cpu_us == null ? "" : took(proc.cpu_us), bytes(proc.memory), proc.uses, proc.age_ms == null ? "" : span(proc.age_ms)];
  }), "No process runs.");
}

export const one = {
  title: ([name]) => `Pool ${name}`,
  async load({ names: [name] }) {
    const [pool, { procs }, series] = await Promise.all([ask(path(name)), ask(query("/_procs", { pool: name })), charts.load(name)]);
    return { pool, procs, series };
  },
  show({ may, health: { daemons: [{ problems }] } }, { pool, procs, series }, { again }) {
    const mayOperate = may.includes("operate");
    const { totals } = pool;
    const settings = Object.entries(pool.settings).map(([key, value]) => [key, typeof value === "string" ? value : JSON.stringify(value)]);
    return [
      section("Now", null,
        facts([["State", stateOfPool(withProblem(pool, problems)), "wide"], ["Language", pool.language], ["Group", pool.group], ["In use", inUse(pool)],
          ["Free", pool.free], ["Opening", pool.opening], ["Stopping", pool.stopping], ["Waiting", pool.waiting], ["Longest wait", pool.waiting > 0 ? span(pool.longest_wait_ms) : ""],
          ["Lent", totals.taken], ["Returned broken", totals.failed], ["Cell", cellOfPool(pool)]]),
        mayOperate ? h("p", { class: "orders" }, button("Change limits", () => changeLimits(pool, again)),
          pool.throttled_ms != null ? button("Unthrottle", () => unthrottle(pool, again)) : null) : null),
      charts.draw(series, "calls", "errors", "lent", "waiting", "waits"),
      section("Processes", plural(procs.length, "process", "processes"), workTable(procs, mayOperate, again)),
      h("details", { "data-key": "settings" }, h("summary", null, h("h2", null, "Settings")), facts(settings)),
    ];
  },
};
