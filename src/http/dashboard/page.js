// The dashboard: asks for the state once a second and shows it.
//
// Everything that is shown is set as text, never as markup: names of pools, URLs and reasons come
// from configurations, children and other servers. Rows are changed in place, so that a selection
// and the place on the page stay. A page that nobody looks at does not ask.
"use strict";

const INTERVAL_MS = 1000;
const PROCS_MAX = 200;

const byId = (id) => document.getElementById(id);
let timer = null;
let answeredAt = null;
let questions = 0;
let sort = "run";

// ---- words ------------------------------------------------------------------------------------

function span(milliseconds) {
  const seconds = milliseconds / 1000;
  if (seconds < 1) return `${Math.round(milliseconds)} ms`;
  if (seconds < 120) return `${Math.floor(seconds)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

function took(microseconds) {
  const milliseconds = microseconds / 1000;
  if (milliseconds < 1) return `${microseconds} µs`;
  if (milliseconds < 10) return `${milliseconds.toFixed(1)} ms`;
  if (milliseconds >= 1000 && milliseconds < 60_000) return `${(milliseconds / 1000).toFixed(1)} s`;
  return span(milliseconds);
}

const number = (value) => (value == null ? "" : value.toLocaleString("en"));
const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;

function stateOfPool(pool) {
  const words = [];
  let mood = "good";
  if (pool.waiting > 0) { words.push("at its limit"); mood = "warn"; }
  if (pool.stressed_ms != null) { words.push(`under stress for ${span(pool.stressed_ms)} more`); mood = "warn"; }
  if (pool.removing) { words.push(`being removed (${pool.removing})`); mood = "warn"; }
  if (pool.throttled_ms != null) {
    words.push(`starts nothing for ${span(pool.throttled_ms)}: ${pool.failure ?? "a start failed"}`);
    mood = "bad";
  }
  return [words.join("; ") || "ok", mood];
}

// How the processes of a pool are confined, and which layers of that this machine lacks.
function cellOfPool({ sandbox }) {
  if (sandbox == null) return "";
  if (sandbox.mode === "off") return { text: "off", mood: "bad" };
  if (sandbox.error != null) return { text: `${sandbox.mode}: ${sandbox.error}`, mood: "bad" };
  const missing = Object.keys(sandbox.missing);
  if (missing.length === 0) return sandbox.mode;
  return { text: `${sandbox.mode}, without ${missing.join(", ")}`, mood: "warn" };
}

// Why a service does not accept, in words.
const CLOSED = {
  at_limit: "at its limit: new connections wait in the system's queue",
  throttled: "its pool starts nothing",
  no_pool: "there is no such pool",
  accept_failed: "the system gives it no connection",
  stopping: "it is being stopped",
};

function stateOfService(service) {
  const words = [service.listening ? "accepts" : `does not accept: ${CLOSED[service.closed] ?? service.closed}`];
  let mood = service.listening ? "good" : "warn";
  if (service.stressed_ms != null) { words.push(`under stress for ${span(service.stressed_ms)} more`); mood = "warn"; }
  if (service.throttled_ms != null) {
    words.push(`starts nothing for ${span(service.throttled_ms)}: ${service.failure ?? "a start failed"}`);
    mood = "bad";
  }
  return [words.join("; "), mood];
}

// The user and the process or the address, as far as they are known.
function holderOf(holder) {
  if (!holder) return "";
  const user = holder.user ?? (holder.uid == null ? null : `uid ${holder.uid}`);
  const from = holder.pid == null ? holder.peer : `pid ${holder.pid}`;
  return [user, from].filter((part) => part != null).join(", ") || `client ${holder.client}`;
}

function reasonOf(job) {
  if (job.paused) return job.reason || "";
  const error = job.info && job.info.error;
  const newest = job.history && job.history[0];
  return error || (newest && newest.reason) || job.reason || "";
}

// ---- tables -----------------------------------------------------------------------------------

// A cell is a text, a number, or {text, mood}, {meter, max}.
function fill(cell, value) {
  if (value !== null && typeof value === "object" && "meter" in value) {
    let meter = cell.firstElementChild;
    if (!meter) {
      meter = document.createElement("meter");
      cell.replaceChildren(meter);
    }
    meter.max = Math.max(value.max, 1);
    meter.value = value.meter;
    meter.title = `${value.meter} of ${value.max}`;
    return;
  }
  const { text, mood } = value !== null && typeof value === "object" ? value : { text: value, mood: "" };
  const shown = typeof text === "number" ? number(text) : (text ?? "");
  if (cell.textContent !== shown) cell.textContent = shown;
  cell.className = [typeof text === "number" ? "number" : "text", mood].join(" ").trim();
}

function show(id, rows, nothing) {
  const body = byId(id).tBodies[0];
  const headings = byId(id).tHead.rows[0].cells;
  if (rows.length === 0) {
    const row = document.createElement("tr");
    const cell = row.insertCell();
    cell.colSpan = headings.length;
    cell.className = "quiet";
    cell.textContent = nothing;
    body.replaceChildren(row);
    delete body.dataset.filled;
    return;
  }
  if (!body.dataset.filled) {
    body.replaceChildren();
    body.dataset.filled = "yes";
  }
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((values, index) => {
    const row = body.rows[index] ?? body.insertRow();
    values.forEach((value, column) => {
      const cell = row.cells[column] ?? row.insertCell();
      cell.dataset.label = headings[column].textContent;
      fill(cell, value);
    });
  });
}

function showPools(pools) {
  byId("pools-count").textContent = plural(pools.length, "pool");
  show("pools", pools.map((pool) => {
    const [text, mood] = stateOfPool(pool);
    return [
      pool.name, pool.language, pool.group ?? "", { meter: pool.used, max: pool.hard_limit },
      pool.used, pool.free, pool.opening, pool.stopping, pool.hard_limit, pool.waiting,
      { text: pool.waiting > 0 ? span(pool.longest_wait_ms) : "", mood: "number" }, cellOfPool(pool), { text, mood },
    ];
  }), "No pool was used yet.");
}

function showProcs(pools) {
  const procs = pools.flatMap((pool) => pool.procs.map((proc) => [pool.name, proc]));
  const left = procs.length - PROCS_MAX;
  byId("procs-count").textContent =
    `${number(procs.length)} ${procs.length === 1 ? "process" : "processes"}` +
    (left > 0 ? `; ${number(left)} are not shown` : "");
  show("procs", procs.slice(0, PROCS_MAX).map(([pool, proc]) => [
    pool, { text: proc.os_pid == null ? "inside" : String(proc.os_pid), mood: "number" },
    { text: proc.state, mood: proc.state === "idle" ? "quiet" : "" },
    proc.db ?? "", holderOf(proc.holder), proc.ddocs, proc.uses,
    { text: span(proc.age_ms), mood: "number" },
    { text: proc.state === "idle" ? span(proc.idle_ms) : "", mood: "number" },
  ]), "No process runs.");
}

function showFunctions({ seconds, total_rows: total, functions }) {
  const time = (microseconds) => ({ text: took(microseconds), mood: "number" });
  const lately = `in the last ${Math.ceil(seconds)} s`;
  byId("functions-count").textContent = `${plural(total, "function")} ${lately}` +
    (total > functions.length ? `; ${functions.length} are shown` : "");
  show("functions", functions.map((row) => [
    row.db ?? "", row.ddoc ?? "", row.function, row.calls,
    { text: row.errors, mood: row.errors > 0 ? "warn" : "" }, { text: row.kills, mood: row.kills > 0 ? "bad" : "" },
    time(row.wait_us), time(row.run_us), time(row.run_p50_us), time(row.run_p99_us), time(row.cpu_us), row.bytes,
  ]), `No function was called ${lately}.`);
}

function showServices(services) {
  byId("services-section").hidden = services.length === 0;
  show("services", services.map((service) => {
    const [text, mood] = stateOfService(service);
    return [
      service.name, service.listen, service.pool, service.connections, service.accepted,
      service.limit ?? "", { text, mood },
    ];
  }), "");
}

function showJobs(jobs) {
  byId("jobs-count").textContent =
    `${plural(jobs.total, "job")}: ${number(jobs.running)} running, ${number(jobs.pending)} pending, ` +
    `${number(jobs.crashed)} crashed` + (jobs.paused > 0 ? `, ${number(jobs.paused)} of them paused` : "") + (jobs.total > jobs.shown.length ? `; ${jobs.shown.length} are shown` : "");
  show("jobs", jobs.shown.map((job) => {
    const info = job.info ?? {};
    const state = job.paused ? "paused" : job.state;
    const mood = { running: "good", crashing: "bad", paused: "quiet" }[state] ?? "";
    return [
      job.source, job.target, { text: state, mood }, info.docs_read ?? "",
      info.docs_written ?? "", info.doc_write_failures ?? "", info.changes_pending ?? "",
      job.start_time ?? "", reasonOf(job),
    ];
  }), "No replication is scheduled.");
}

function showTasks(tasks) {
  byId("tasks-section").hidden = tasks.length === 0;
  show("tasks", tasks.map((task) => [
    task.language, task.docs_read, task.docs_written,
    new Date(task.started_on * 1000).toISOString().replace(".000Z", "Z"),
  ]), "");
}

// ---- the service ------------------------------------------------------------------------------

function say(text, mood) {
  byId("state").textContent = text;
  byId("state").className = mood;
}

function showAll(state) {
  const { status, functions, jobs, tasks, user, version } = state;
  byId("version").textContent = version;
  byId("content").hidden = false;
  byId("login").hidden = true;
  byId("logout").hidden = user === null;
  showPools(status.pools);
  showProcs(status.pools);
  showFunctions(functions);
  showServices(status.services);
  showJobs(jobs);
  showTasks(tasks);
  const waiting = status.pools.reduce((sum, pool) => sum + pool.waiting, 0);
  say(`live; ${plural(waiting, "request")} ${waiting === 1 ? "waits" : "wait"} for a process` +
    (status.stale_proc_count > 0 ? `; ${number(status.stale_proc_count)} processes are older than the last reload` : ""),
    waiting > 0 ? "warn" : "good");
}

async function ask() {
  clearTimeout(timer);
  timer = null;
  const question = ++questions;
  const chosen = new URLSearchParams({ period: byId("period").value, sort });
  try {
    const response = await fetch(`/_dashboard/state?${chosen}`, { cache: "no-store", signal: AbortSignal.timeout(10_000) });
    const state = await response.json();
    // Somebody chose anew, or logged in or out, while this was asked.
    if (question !== questions) return;
    if (response.ok) {
      answeredAt = Date.now();
      showAll(state);
    } else if (response.status === 401 || response.status === 403) {
      byId("content").hidden = true;
      byId("login").hidden = false;
      byId("logout").hidden = response.status === 401;
      say(response.status === 401 ? "log in to see the service" : state.reason, "warn");
    } else {
      say(`the service says: ${state.reason}`, "bad");
    }
  } catch {
    if (question !== questions) return;
    const since = answeredAt === null ? "" : `; what is shown is ${span(Date.now() - answeredAt)} old`;
    say(`the service does not answer${since}`, "bad");
  }
  later();
}

function later() {
  if (timer === null && !document.hidden) timer = setTimeout(ask, INTERVAL_MS);
}

async function session(method, body) {
  const response = await fetch("/_session", {
    method,
    headers: body ? { "Content-Type": "application/json" } : {},
    body: body && JSON.stringify(body),
  });
  const answer = await response.json();
  byId("login-reason").textContent = response.ok ? "Log in to see the service." : answer.reason;
  await ask();
}

function sortBy(button) {
  sort = button.dataset.sort;
  byId("functions").querySelector("[aria-sort]").removeAttribute("aria-sort");
  button.parentElement.setAttribute("aria-sort", "descending");
  ask();
}

byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  const form = event.target;
  session("POST", { name: form.elements.name.value, password: form.elements.password.value });
  form.elements.password.value = "";
});
byId("logout").addEventListener("click", () => session("DELETE"));
byId("period").addEventListener("change", ask);
for (const button of byId("functions").tHead.querySelectorAll("button")) {
  button.addEventListener("click", () => sortBy(button));
}
document.addEventListener("visibilitychange", later);

// `settee dashboard` leads here with a token that counts once; it is not to stay in the history.
const token = new URLSearchParams(location.hash.slice(1)).get("token");
if (token) {
  history.replaceState(null, "", location.pathname);
  session("POST", { token });
} else {
  ask();
}
