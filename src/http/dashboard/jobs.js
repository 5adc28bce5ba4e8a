// Replication jobs: the list, one job, and orders to them.
//
// The first part builds the requests for jobs.

import { ask, query, remembering } from "./api.js";
import * as charts from "./charts.js";
import { choiceField, facts, filterForm, h, link, mood, pages, searchField, section, table, to } from "./dom.js";
import { button, confirm } from "./orders.js";
import { number, plural, when } from "./words.js";

// ---- asking -----------------------------------------------------------------------------------

const PAGE = 50;
const GROUPS_SHOWN = 10;

// The longest text that is searched for, in characters.
const TEXT_MAX = 200;

// States of jobs, and those of documents without a job.
const STATES = ["running", "pending", "crashing", "paused"];
const DOC_STATES = ["error", "completed", "failed"];

const FILTER = ["state", "match", "source", "target", "reason", "daemon"];

// A text matches anywhere, unless it has wildcards (* and ?).
const pattern = (text) => (!text || /[*?]/.test(text) ? text : `*${text}*`);

// The parameters of a filter, and its selection for an order.
const parameters = ({ state, match, source, target, reason, daemon }) =>
  ({ states: state, match: pattern(match), source: pattern(source), target: pattern(target), reason, daemon });

function selection(filter) {
  const { states, match, ...sides } = parameters(filter);
  return { states: states ? [states] : [], match: match ? [match] : [], ...sides, all: !Object.values(filter).some(Boolean) };
}

const askForGroups = remembering(5_000);

// Jobs of a filter that fail, counted by reason, the largest group first.
async function groups(filter) {
  const path = query("/_scheduler/jobs", { ...parameters({ ...filter, state: "crashing" }), group_by: "reason" });
  return (await askForGroups(path)).groups;
}

const isJob = (job) => STATES.includes(job.state);
// Documents without a job that a restart runs again.
const canRunAgain = (state) => state === "error" || state === "failed";

// ---- orders -----------------------------------------------------------------------------------

const mayOrder = ({ may }) => may.includes("operate");
// Operators may not end jobs: they do not see documents.
const mayEnd = ({ may }) => may.includes("administer");

// What an order does to one job, and to several.
const ORDERS = {
  pause: ["Pause", "stops until it is resumed", "They stop until they are resumed."],
  resume: ["Resume", "runs again when it is its turn", "They run again when it is their turn."],
  restart: ["Restart", "restarts at its checkpoint now, without waiting for its next try", "They restart at their checkpoints now, without waiting for their next try."],
  cancel: ["Cancel", "ends and is not started again"],
  delete: ["Delete", "ends, and its document is deleted; documents that it has written stay", "They end, and their documents are deleted. Documents that they have written stay."],
};
const ENDS = ["cancel", "delete"];

const send = (order) => ask("/_scheduler/_bulk", "POST", order);

async function give(order) {
  const { total, failed, results, loading } = await send(order);
  if (loading) throw new Error(`${number(total - failed)} done, but others are not known yet: the service is still loading its documents. Repeat the order.`);
  if (total === 0) throw new Error("No such job exists any longer.");
  if (failed > 0) throw new Error(`${number(failed)} of ${number(total)} were refused: ${results[0].reason}`);
}

// The last part of a URL names the database.
const databaseOf = (url) => url.split("?")[0].split("/").filter(Boolean).at(-1) ?? url;

// A job is named by its document; without one by its databases.
const nameOf = (job) => job.doc_id ?? `${databaseOf(job.source)} → ${databaseOf(job.target)}`;

function orderOne(order, job, done) {
  const [verb, does] = ORDERS[order];
  confirm({
    title: `${verb} ${nameOf(job)}`, verb: `${verb} it`, danger: ENDS.includes(order), done, typed: order === "delete" ? job.doc_id : null,
    text: `The replication from ${job.source} to ${job.target} ${does}.`,
    run: () => give({ order, select: isJob(job) ? { match: [job.id] } : { match: [job.doc_id], states: [job.state] } }),
  });
}

// `left` is called instead of `again` when the order ends the job.
function buttonsOf(state, job, again, left = again) {
  if (!mayOrder(state) || !(isJob(job) || canRunAgain(job.state))) return null;
  const orders = job.paused ? ["resume"] : isJob(job) ? ["pause", "restart"] : ["restart"];
  if (mayEnd(state)) orders.push(job.doc_id == null ? "cancel" : "delete");
  return h("span", { class: "orders" }, orders.map((order) =>
    button(ORDERS[order][0], () => orderOne(order, job, ENDS.includes(order) ? left : again), { "aria-label": `${ORDERS[order][0]} ${nameOf(job)}` })));
}

// An order to all jobs that match the filter, on every page. The confirmation shows how many they are and why they
// fail; if more match by the time it is answered, nothing is done.
function orderAll(order, filter, done) {
  const [verb, , text] = ORDERS[order];
  const select = selection(filter);
  let expect = 0;
  confirm({
    title: `${verb} jobs`, verb: `${verb} all`, danger: ENDS.includes(order), text, done,
    async look() {
      const { total, groups: found } = await send({ order, select, dry_run: true });
      if (total === 0) throw new Error("No such job exists any longer.");
      expect = total;
      const lines = found.slice(0, GROUPS_SHOWN).map((group) => `${number(group.count)} × ${group.reason ?? Object.keys(group.states).join(", ")}`);
      if (found.length > GROUPS_SHOWN) lines.push(`${plural(found.length - GROUPS_SHOWN, "other reason")}`);
      return { title: `${verb} ${plural(total, "job")}`, lines, typed: ENDS.includes(order) ? total : null };
    },
    run: () => give({ order, select, expect }),
  });
}

// ---- views ------------------------------------------------------------------------------------

const MOODS = { running: "good", completed: "good", crashing: "bad", error: "bad", failed: "bad", paused: "quiet" };

function stateOfJob(job) {
  const state = job.paused ? "paused" : job.state;
  return mood(state, `state ${MOODS[state] ?? ""}`);
}

export const counts = (jobs) => `${plural(jobs.total, "job")}: ${number(jobs.running)} running, ${number(jobs.pending)} pending, ` +
  `${number(jobs.crashed)} crashed` + (jobs.paused > 0 ? `, ${number(jobs.paused)} of them paused` : "") +
  (jobs.failed > 0 ? `; ${plural(jobs.failed, "document")} failed for good` : "") +
  (jobs.loading ? "; incomplete: documents are still being loaded" : "");

// The daemon that runs a job; another daemon's report is some seconds old.
const daemonOf = (job) => job.daemon && h("span", { title: job.age_s == null ? null : `as of ${job.age_s} s ago` }, job.daemon);

// A document without a job has no page.
const nameCell = (job) => (isJob(job) ? link(to("jobs", job.doc_id ?? job.id), nameOf(job)) : job.doc_id);

export function jobsTable(jobs, nothing, state, again) {
  const columns = [["State", "first"], ["Job", "first"], ["Reason", "first text"], ["Source and target", "text"],
    ["Written", "number"], ["Refused", "number"], ["Pending", "number"], ["Since"]];
  const hasTries = jobs.some((job) => job.next_try);
  if (hasTries) columns.push(["Next try"]);
  const hasDaemons = jobs.some((job) => job.daemon);
  if (hasDaemons) columns.push(["Daemon"]);
  return table("jobs", columns, jobs.map((job) => {
    const info = job.info ?? {};
    const buttons = state && buttonsOf(state, job, again);
    const name = buttons ? h("div", { class: "named" }, nameCell(job), buttons) : nameCell(job);
    const cells = [stateOfJob(job), name, isJob(job) ? job.reason : info.error, h("span", null, job.source, h("br"), job.target),
      info.docs_written, info.doc_write_failures, info.changes_pending, when(job.since)];
    if (hasTries) cells.push(when(job.next_try));
    if (hasDaemons) cells.push(daemonOf(job));
    return [job.id ?? job.doc_id, ...cells];
  }), nothing);
}

export const groupsTable = (found, filter = {}) => table("reasons", [["Jobs", "number first"], ["Reason", "text first"]], found.slice(0, GROUPS_SHOWN).map(({ reason, count }) =>
  [reason, count, link(listPath({ ...filter, state: "crashing", reason }), reason ?? "no reason given")]), "No job fails.");

export const listPath = (filter) => query("#/jobs", filter);

export const list = {
  title: () => "Replications",
  async load({ params }) {
    const filter = Object.fromEntries(FILTER.map((name) => [name, params.get(name)]));
    const skip = Number(params.get("skip") ?? 0);
    const hasGroups = !filter.reason && (!filter.state || filter.state === "crashing");
    // The jobs that the filter shows, those in trouble first: {total_rows, jobs}.
    const asked = ask(query("/_scheduler/jobs", { ...parameters(filter), sort: "trouble", skip, limit: PAGE }));
    const [found, reasons, series] = await Promise.all([asked, hasGroups ? groups(filter) : [], charts.load()]);
    return { filter, skip, found, reasons, series };
  },
  show(state, { filter, skip, found: { total_rows: total, jobs }, reasons, series }, { go, again }) {
    const choose = (change) => go(listPath({ ...filter, ...change }));
    const states = [...STATES, ...(state.may.includes("inspect") ? DOC_STATES : [])];
    const field = (name, label, placeholder) => searchField(label,
      { id: `job-${name}`, maxlength: TEXT_MAX, value: filter[name] ?? "", placeholder }, (text) => choose({ [name]: text }));
    const choice = (name, label, names) => choiceField(label, `job-${name}`, ["", ...names], filter[name] ?? "", (chosen) => choose({ [name]: chosen }));
    const fleet = (state.fleet?.daemons ?? []).map((daemon) => daemon.address);
    const possible = canRunAgain(filter.state) ? ["restart"] : DOC_STATES.includes(filter.state) ? [] : ["pause", "resume", "restart"];
    const orders = mayOrder(state) && possible.length > 0 && total > 0 ? [...possible, ...(mayEnd(state) ? ["delete"] : [])] : [];
    const all = (order) => button(`${ORDERS[order][0]} all ${number(total)}`, () => orderAll(order, filter, again), { "data-order": order });
    return [
      charts.draw(series, "written", "pending"),
      reasons.length > 0 ? section("Reasons", "of failing jobs", groupsTable(reasons, filter)) : null,
      section("Jobs", counts(state.jobs),
        filterForm(
          choice("state", "State", states),
          field("match", "Job", "document or id"), field("source", "Source", "URL"), field("target", "Target", "URL"),
          fleet.length > 1 || filter.daemon ? choice("daemon", "Daemon", new Set([...fleet, filter.daemon].filter(Boolean))) : null,
          filter.reason ? h("span", null, `Reason: ${filter.reason} `, link(listPath({ ...filter, reason: null }), "any reason")) : null,
          orders.length > 0 ? h("span", { class: "orders" }, orders.map(all)) : null),
        jobsTable(jobs, FILTER.some((name) => filter[name]) ? "No such job." : "No replication is scheduled.", state, again),
        pages(total, skip, PAGE, (at) => listPath({ ...filter, skip: at }))),
    ];
  },
};

export const one = {
  title: (_, job) => (job ? `Job ${nameOf(job)}` : "Job"),
  load: ({ names: [id] }) => ask(`/_scheduler/jobs/${encodeURIComponent(id)}`),
  show(state, job, { again }) {
    const info = job.info ?? {};
    const problem = state.health.daemons[0].problems.find(({ kind, subject }) => kind === "replications_failing" && subject === job.reason);
    const events = (job.history ?? []).map((event, at) => [`${event.timestamp} ${at}`, when(event.timestamp), event.type, event.reason]);
    const refused = (job.refused ?? []).map((doc) => [`${doc.id} ${doc.rev}`, doc.id, doc.rev, doc.error, doc.reason]);
    return [
      section("Now", null,
        facts([["State", stateOfJob(job), "wide"], ["Reason", job.reason, "wide"], ["What to do", problem?.remedy, "wide"], ["Since", when(job.since)], ["Next try", when(job.next_try)], ["Document", job.doc_id], ["Id", job.id], ["Source", job.source], ["Target", job.target],
          ["User", job.user], ["Asked for", when(job.start_time)], ["Errors in a row", job.error_count], ["Priority", job.priority], ["Daemon", daemonOf(job)],
          ["Paused", job.paused && h("span", null, `by ${job.paused.by}, `, when(job.paused.since))],
          ["Read", info.docs_read], ["Written", info.docs_written], ["Refused", info.doc_write_failures], ["Pending", info.changes_pending],
          ["Through sequence", info.through_seq], ["Checkpoint", info.checkpointed_source_seq]]),
        buttonsOf(state, job, again, () => { location.hash = "#/jobs"; })),
      section("History", "latest first", table("history", [["When", "first"], ["Event", "first"], ["Reason", "text"]], events, "No events yet.")),
      refused.length > 0 ? section("Documents refused by the target", plural(refused.length, "document"),
        table("refused", [["Document", "first text"], ["Revision", "text"], ["Error"], ["Reason", "text"]], refused)) : null,
    ];
  },
};
