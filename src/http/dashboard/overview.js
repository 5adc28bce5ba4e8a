// The first view: problems; below them pools, functions and replications, those in trouble first; then services,
// daemons, the last hour, and recent orders.

import { ask, query, remembering } from "./api.js";
import * as charts from "./charts.js";
import { h, link, section, table } from "./dom.js";
import { daemons } from "./fleet.js";
import { costTable, functionsTable, lately } from "./functions.js";
import { counts, groupsTable, jobsTable } from "./jobs.js";
import { byTrouble, poolLink, poolsTable, procsSection } from "./pools.js";
import { problemsOf } from "./problems.js";
import { number, plural, stateOfService, when } from "./words.js";

// Maximum rows of a table.
const ROWS_MAX = 8;

const more = (path, total, shown, text) => total > shown && h("p", { class: "more" }, link(path, text));

// Data that changes rarely; if it is unavailable, the rest of the page is still shown.
const seldom = (path) => remembering(10_000, () => ask(query(path, { limit: ROWS_MAX })).catch(() => null));
const audit = seldom("/_audit");
const tenants = seldom("/_tenants");

function services(all) {
  const columns = [["Service", "first"], ["State", "first text"], ["Listens on", "text"], ["Pool"], ["Connections", "number"], ["Accepted", "number"], ["Limit", "number"]];
  const sorted = all.toSorted((one, other) => one.listening - other.listening);
  return section("Services", null, table("services", columns, sorted.map((service) => [
    service.name,
    service.name, stateOfService(service), service.listen, poolLink(service.pool), service.connections, service.accepted, service.limit,
  ])));
}

function views(tasks) {
  const columns = [["Language", "first"], ["Documents read", "number"], ["Rows written", "number"], ["Since"]];
  return section("Views", null, table("tasks", columns, tasks.map((task) => [
    task.pid, task.language, task.docs_read, task.docs_written, when(task.started_on),
  ])));
}

function orders({ total_rows: total, records }) {
  const columns = [["When", "first"], ["Who", "first"], ["Order", "first"], ["For", "text"], ["How many", "number"], ["Error", "text"]];
  return section("Orders", `latest of ${number(total)}`, table("orders", columns, records.map((record) => [
    `${record.ts} ${record.request_id} ${record.on}`,
    when(record.ts), record.who, record.what.replaceAll("_", " "), record.on, record.count ?? "", record.error,
  ])));
}

export const overview = {
  title: () => "",
  async load({ state: { may } }) {
    const [series, records, databases] = await Promise.all([charts.load(), may.includes("inspect") ? audit() : null, tenants()]);
    return { series, records, databases };
  },
  show(state, { series, records, databases }, { again }) {
    const { status, functions, jobs, tasks } = state;
    const pools = byTrouble(state);
    return [
      problemsOf(state.health, state.may.includes("operate") && again),
      section("Pools", plural(pools.length, "pool"), poolsTable(pools.slice(0, ROWS_MAX)),
        more("#/pools", pools.length, ROWS_MAX, `All ${number(pools.length)} pools`)),
      procsSection(pools),
      section("Functions", `${plural(functions.total_rows, "function")} ${lately(functions.seconds)}`,
        functionsTable(functions),
        h("p", { class: "more" }, link("#/functions", "All functions, sorted by any column"))),
      section("Replications", counts(jobs),
        jobs.error ? h("p", { class: "bad" }, `Replications cannot be listed: ${jobs.error}`) : null,
        jobs.reasons.length > 0 ? groupsTable(jobs.reasons) : null,
        jobs.error ? null : jobsTable(jobs.first, "No replication is scheduled."),
        h("p", { class: "more" }, link("#/jobs", "All jobs, with search and orders"))),
      status.services.length > 0 ? services(status.services) : null,
      daemons(state),
      tasks.length > 0 ? views(tasks) : null,
      section("The last hour", null, charts.draw(series, "calls", "errors", "waiting", "waits", "written", "pending")),
      records?.total_rows > 0 ? orders(records) : null,
      databases?.total_rows > 0 ? section("Databases", h("span", null, "what their functions cost since ", when(databases.since)), costTable("tenants", databases.tenants)) : null,
    ];
  },
};
