// Jobs of replications: the list, one job, and the orders to them.
//
// Everything about how jobs are asked for stands in the first part.

import { ask, query, remembering } from "./api.js";
import * as charts from "./charts.js";
import { facts, h, link, mood, pages, section, table, to } from "./dom.js";
import { button, confirm, each } from "./orders.js";
import { number, plural, when } from "./words.js";

// ---- asking -----------------------------------------------------------------------------------

const PAGE = 50;

// How many jobs are looked at for a text or a reason, and ordered at once.
const SCANNED_MAX = 1000;

// States of jobs, and those in which only a document is left.
const STATES = ["running", "pending", "crashing", "paused"];
const OVER = ["completed", "failed"];

const scanPath = (states) => query("/_scheduler/jobs", { states, limit: SCANNED_MAX });
const [scan, scanCrashing] = [0, 0].map(() => remembering(5_000, (path) => ask(path)));

export function reasonOf(job) {
  if (job.paused) return job.reason || `paused by ${job.paused.by}`;
  const newest = job.history?.[0];
  return job.info?.error || newest?.reason || job.reason || "";
}

// When it is tried again: a job that backs off says so in its reason.
const nextTry = (job) => job.next_try ?? job.reason?.match(/until (\d{4}-\S+Z)/)?.[1];

// What several jobs have in common: the reason without its addresses.
const groupOf = (job) => reasonOf(job).replace(/https?:\/\/[^\s"',]+/g, "URL");
const fits = (job, match) => [job.id, job.doc_id, job.source, job.target, reasonOf(job)].some((text) => text?.toLowerCase().includes(match));

// The jobs that a filter shows: {total, jobs}.
async function find({ state, match, reason }, skip, limit) {
  if (OVER.includes(state)) {
    const { total_rows: total, docs } = await ask(query("/_scheduler/docs", { states: state, skip, limit }));
    return { total, jobs: docs };
  }
  if (!match && !reason) {
    const { total_rows: total, jobs } = await ask(query("/_scheduler/jobs", { states: state, skip, limit }));
    return { total, jobs };
  }
  const wanted = (match ?? "").toLowerCase();
  const { total_rows: total, jobs: all } = await scan(scanPath(state));
  const jobs = all.filter((job) => fits(job, wanted) && (!reason || groupOf(job) === reason));
  return { total: jobs.length, jobs: jobs.slice(skip, skip + limit), unseen: Math.max(total - all.length, 0) };
}

// Groups of jobs that fail for the same reason, largest first: [reason, count].
export async function groups() {
  const counts = new Map();
  for (const job of (await scanCrashing(scanPath("crashing"))).jobs) {
    if (!job.paused) counts.set(groupOf(job), (counts.get(groupOf(job)) ?? 0) + 1);
  }
  return [...counts].sort((one, other) => other[1] - one[1]);
}

const jobPath = (id) => `/_scheduler/jobs/${encodeURIComponent(id)}`;

// ---- orders -----------------------------------------------------------------------------------

const mayOrder = ({ may }) => may.includes("operate");
// Operators may not: they do not see documents.
const mayCancel = ({ may }) => may.includes("administer");

const ORDERS = {
  _pause: ["Pause", "stops and does not run again before it is resumed", "stop and do not run again before they are resumed"],
  _resume: ["Resume", "gets its turn again", "get their turn again"],
  _restart: ["Restart", "stops and begins anew at its checkpoint, without waiting for its next try", "stop and begin anew at their checkpoints, without waiting for their next try"],
};

async function cancel(job) {
  if (job.doc_id == null) return ask("/_replicate", "POST", { cancel: true, id: job.id });
  const path = `/_replicator/${encodeURIComponent(job.doc_id)}`;
  const { _rev: rev } = await ask(path);
  return ask(query(path, { rev }), "DELETE");
}

const nameOf = (job) => job.doc_id ?? job.id;

function orderOne(order, job, done) {
  const [verb, does] = ORDERS[order];
  confirm({
    title: `${verb} ${nameOf(job)}`, verb, done,
    text: `The replication from ${job.source} to ${job.target} ${does}.`,
    run: () => ask(`${jobPath(job.id)}/${order}`, "POST"),
  });
}

function cancelOne(job, done) {
  const [verb, text] = job.doc_id == null
    ? ["Cancel", "It ends and is not started again."]
    : ["Delete", `Its document ${job.doc_id} is deleted, and the replication ends. What it has written stays.`];
  confirm({
    title: `${verb} ${nameOf(job)}`, verb: `${verb} it`, danger: true, done,
    text: `The replication from ${job.source} to ${job.target}: ${text}`,
    run: () => cancel(job),
  });
}

// `left` is done when there is no such job any more.
function buttonsOf(state, job, again, left = again) {
  if (!mayOrder(state) || OVER.includes(job.state)) return null;
  const order = job.paused ? "_resume" : "_pause";
  const named = (text) => ({ "aria-label": `${text} ${nameOf(job)}` });
  return h("span", { class: "orders" },
    button(ORDERS[order][0], () => orderOne(order, job, again), named(ORDERS[order][0])),
    job.paused ? null : button("Restart", () => orderOne("_restart", job, again), named("Restart")),
    mayCancel(state) ? button(job.doc_id == null ? "Cancel" : "Delete", () => cancelOne(job, left), named(job.doc_id == null ? "Cancel" : "Delete")) : null);
}

// Orders to all that the filter shows, on every page of it.
function orderAll(order, filter, total, again) {
  const [verb, , do_] = ORDERS[order];
  const which = [filter.state && `that are ${filter.state}`, filter.match && `with “${filter.match}”`, filter.reason && `that fail with “${filter.reason}”`].filter(Boolean).join(" ");
  confirm({
    title: `${verb} ${plural(Math.min(total, SCANNED_MAX), "job")}`, verb: `${verb} all`, done: again,
    text: `All jobs ${which || "of this service"} ${do_}.` + (total > SCANNED_MAX ? ` The first ${number(SCANNED_MAX)} of ${number(total)}: give the order again for the others.` : ""),
    run: async (_, tell) => {
      const { jobs } = await find(filter, 0, SCANNED_MAX);
      await each(jobs, tell, (job) => ask(`${jobPath(job.id)}/${order}`, "POST"));
    },
  });
}

// ---- views ------------------------------------------------------------------------------------

const MOODS = { running: "good", completed: "good", crashing: "bad", failed: "bad", paused: "quiet" };

export function stateOfJob(job) {
  const state = job.paused ? "paused" : job.state;
  return mood(state, `state ${MOODS[state] ?? ""}`);
}

export const counts = (jobs) => `${plural(jobs.total, "job")}: ${number(jobs.running)} running, ${number(jobs.pending)} pending, ` +
  `${number(jobs.crashed)} crashed` + (jobs.paused > 0 ? `, ${number(jobs.paused)} of them paused` : "");

// A job that is over has no page: only its document is left.
const nameCell = (job) => (OVER.includes(job.state) ? job.doc_id : link(to("jobs", job.id), job.doc_id ?? `${job.id.slice(0, 12)}…`, { title: job.id }));

export function jobsTable(jobs, nothing, state, again) {
  const columns = [["State", "first"], ["Job", "first"], ["Reason", "first text"], ["Source and target", "text"],
    ["Written", "number"], ["Refused", "number"], ["Pending", "number"], ["Since", ""]];
  const hasTries = jobs.some(nextTry);
  if (hasTries) columns.push(["Next try", ""]);
  const orders = state && jobs.some((job) => buttonsOf(state, job));
  if (orders) columns.push(["Orders", ""]);
  return table("jobs", columns, jobs.map((job) => {
    const info = job.info ?? {};
    const cells = [stateOfJob(job), nameCell(job), reasonOf(job), h("span", null, job.source, h("br"), job.target),
      info.docs_written, info.doc_write_failures, info.changes_pending, when(job.since ?? job.last_updated ?? job.start_time)];
    if (hasTries) cells.push(when(nextTry(job)));
    if (orders) cells.push(buttonsOf(state, job, again));
    return { key: job.id ?? job.doc_id, cells };
  }), nothing);
}

export const groupsTable = (found) => table("reasons", [["Jobs", "number first"], ["Reason", "text first"]], found.slice(0, 10).map(([reason, count]) =>
  ({ key: reason, cells: [count, link(listPath({ state: "crashing", reason }), reason || "no reason given")] })), "No job fails.");

export const listPath = (filter) => query("#/jobs", filter);

export const list = {
  title: () => "Replications",
  async load({ params }) {
    const filter = Object.fromEntries(["state", "match", "reason"].map((name) => [name, params.get(name)]));
    const skip = Number(params.get("skip") ?? 0);
    const [found, reasons, series] = await Promise.all([find(filter, skip, PAGE), groups(), charts.load()]);
    return { filter, skip, found, reasons, series };
  },
  show(state, { filter, skip, found, reasons, series }, { go, again }) {
    const choose = (change) => go(listPath({ ...filter, ...change }));
    const states = [...STATES, ...(state.may.includes("inspect") ? OVER : [])];
    const option = (name) => h("option", { value: name, selected: (filter.state ?? "") === name }, name || "any state");
    const isOrdered = mayOrder(state) && !OVER.includes(filter.state) && found.total > 0;
    const all = (order) => button(`${ORDERS[order][0]} all ${number(found.total)}`, () => orderAll(order, filter, found.total, again), { "data-order": order });
    return [
      charts.draw(series, "written", "pending"),
      reasons.length > 0 && !filter.reason ? section("Reasons", "of jobs that fail", groupsTable(reasons)) : null,
      section("Jobs", counts(state.jobs),
        h("form", { class: "filter", role: "search", onsubmit: (event) => event.preventDefault() },
          h("label", null, "State", h("select", { id: "job-state", onchange: (event) => choose({ state: event.target.value }) }, ["", ...states].map(option))),
          h("label", null, "Search", h("input", { id: "job-match", type: "search", value: filter.match ?? "", placeholder: "document, source, target, reason", oninput: (event) => choose({ match: event.target.value }) })),
          filter.reason ? h("span", null, `Reason: ${filter.reason} `, link(listPath({ ...filter, reason: null }), "any reason")) : null,
          isOrdered ? h("span", { class: "orders" }, Object.keys(ORDERS).map(all)) : null),
        found.unseen > 0 ? h("p", { class: "warn" }, `${plural(found.unseen, "job")} beyond the first ${number(SCANNED_MAX)} were not looked at: choose a state.`) : null,
        jobsTable(found.jobs, filter.state || filter.match || filter.reason ? "No such job." : "No replication is scheduled.", state, again),
        pages(found.total, skip, PAGE, (at) => listPath({ ...filter, skip: at }))),
    ];
  },
};

export const one = {
  title: ([id]) => `Job ${id}`,
  load: ({ names: [id] }) => ask(jobPath(id)),
  show(state, job, { again }) {
    const info = job.info ?? {};
    const events = (job.history ?? []).map((event, at) => ({ key: `${event.timestamp} ${at}`, cells: [when(event.timestamp), event.type, event.reason] }));
    const refused = (job.refused ?? []).map((doc) => ({ key: `${doc.id} ${doc.rev}`, cells: [doc.id, doc.rev, doc.error, doc.reason] }));
    return [
      section("Now", null,
        facts([["State", stateOfJob(job), "wide"], ["Reason", reasonOf(job), "wide"], ["Next try", when(nextTry(job))], ["Document", job.doc_id], ["Source", job.source], ["Target", job.target],
          ["User", job.user], ["Asked for", when(job.start_time)], ["Errors in a row", job.error_count], ["Priority", job.priority],
          ["Paused", job.paused && h("span", null, `by ${job.paused.by}, `, when(job.paused.since))],
          ["Read", info.docs_read], ["Written", info.docs_written], ["Refused", info.doc_write_failures], ["Pending", info.changes_pending],
          ["Through sequence", info.through_seq], ["Checkpoint", info.checkpointed_source_seq]]),
        buttonsOf(state, job, again, () => { location.hash = "#/jobs"; })),
      section("History", "latest first", table("history", [["When", "first"], ["Event", "first"], ["Reason", "text"]], events, "Nothing happened yet.")),
      refused.length > 0 ? section("Documents refused by the target", plural(refused.length, "document"),
        table("refused", [["Document", "first text"], ["Revision", "text"], ["Error", ""], ["Reason", "text"]], refused, "")) : null,
    ];
  },
};
