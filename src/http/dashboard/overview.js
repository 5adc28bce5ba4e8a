// The first view: what is wrong, the last hour, pools, what functions cost, services, replications, views.

import * as charts from "./charts.js";
import { h, link, mood, section, table } from "./dom.js";
import { daemons } from "./fleet.js";
import { functionsTable, lately } from "./functions.js";
import { counts, find, groups, groupsTable, jobsTable } from "./jobs.js";
import { byTrouble, poolLink, poolsTable, procsSection } from "./pools.js";
import { moodOf, number, plural, stateOfService, when } from "./words.js";

const POOLS_MAX = 8;
const FUNCTIONS_MAX = 8;
const JOBS_MAX = 8;

const more = (path, total, shown, text) => total > shown && h("p", { class: "more" }, link(path, text));

function problemsOf({ problems }) {
  const columns = [["Problem", "first"], ["Of", "text"], ["Since", ""], ["Cause", "text"], ["What to do", "text"]];
  return section("Problems", plural(problems.length, "problem"), table("problems", columns, problems.map((problem) => ({
    key: `${problem.kind} ${problem.subject}`,
    cells: [mood(problem.kind.replaceAll("_", " "), moodOf(problem.severity)), problem.subject, when(problem.since), problem.cause, problem.remedy],
  })), ""));
}

function services(all) {
  const columns = [["Service", "first"], ["State", "first text"], ["Listens on", "text"], ["Pool", ""], ["Connections", "number"], ["Accepted", "number"], ["Limit", "number"]];
  return section("Services", null, table("services", columns, all.map((service) => ({
    key: service.name,
    cells: [service.name, stateOfService(service), service.listen, poolLink(service.pool), service.connections, service.accepted, service.limit],
  })), ""));
}

function views(tasks) {
  const columns = [["Language", "first"], ["Documents read", "number"], ["Rows written", "number"], ["Since", ""]];
  return section("Views", null, table("tasks", columns, tasks.map((task) => ({
    key: task.pid, cells: [task.language, task.docs_read, task.docs_written, when(task.started_on)],
  })), ""));
}

export const overview = {
  title: () => "",
  async load({ state }) {
    const [series, found, reasons] = await Promise.all([charts.load(), find({}, 0, JOBS_MAX), state.jobs.crashed > 0 ? groups() : []]);
    return { series, found, reasons };
  },
  show(state, { series, found, reasons }) {
    const { status, functions, jobs, tasks } = state;
    const pools = byTrouble(status.pools);
    const costly = functions.functions.slice(0, FUNCTIONS_MAX);
    return [
      state.health.problems.length > 0 ? problemsOf(state.health) : null,
      charts.draw(series, "calls", "errors", "waiting", "waits", "written", "pending"),
      section("Pools", plural(pools.length, "pool"), poolsTable(pools.slice(0, POOLS_MAX)),
        more("#/pools", pools.length, POOLS_MAX, `All ${number(pools.length)} pools`)),
      procsSection(pools),
      section("Functions", `${plural(functions.total_rows, "function")} ${lately(functions.seconds)}`,
        functionsTable({ ...functions, functions: costly }, "run"),
        h("p", { class: "more" }, link("#/functions", "All functions, by any number"))),
      status.services.length > 0 ? services(status.services) : null,
      daemons(state),
      section("Replications", counts(jobs),
        reasons.length > 0 ? groupsTable(reasons) : null,
        jobsTable(found.jobs, "No replication is scheduled."),
        h("p", { class: "more" }, link("#/jobs", "All jobs, with search and orders"))),
      tasks.length > 0 ? views(tasks) : null,
    ];
  },
};
