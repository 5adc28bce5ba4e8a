// Numbers, times and states as text.

import { h, mood } from "./dom.js";

export function span(milliseconds) {
  const seconds = milliseconds / 1000;
  if (seconds < 1) return `${Math.round(milliseconds)} ms`;
  if (seconds < 120) return `${Math.floor(seconds)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

export function took(microseconds) {
  const milliseconds = microseconds / 1000;
  if (milliseconds < 1) return `${microseconds} µs`;
  if (milliseconds < 10) return `${milliseconds.toFixed(1)} ms`;
  if (milliseconds >= 1000 && milliseconds < 60_000) return `${(milliseconds / 1000).toFixed(1)} s`;
  return span(milliseconds);
}

export const number = (value) => (value == null ? "" : value.toLocaleString("en"));
export const plural = (count, word, words = `${word}s`) => `${number(count)} ${count === 1 ? word : words}`;
export const bytes = (count) => (count == null ? "" : `${(count / 1048576).toFixed(count < 10485760 ? 1 : 0)} MiB`);

// A time as text, such as `5 s ago` or `in 2 min`; the exact time is the title.
export function when(time) {
  const at = time == null ? NaN : typeof time === "number" ? time * 1000 : Date.parse(time);
  if (Number.isNaN(at)) return "";
  const exact = new Date(at).toISOString().replace(/\.\d+Z/, "Z");
  const past = Date.now() - at;
  const text = past >= 0 ? `${span(past)} ago` : `in ${span(-past)}`;
  return h("time", { datetime: exact, title: exact }, Math.abs(past) < 1000 ? "now" : text);
}

// Signs are [text, mood], those that do not apply are false; the last one's mood is shown.
function stateOf(signs) {
  const shown = signs.filter(Boolean);
  return mood(shown.map(([text]) => text).join("; "), shown.at(-1)[1]);
}

const stressed = ({ stressed_ms: time }) => time != null && [`under stress for ${span(time)} more`, "warn"];
const throttled = ({ throttled_ms: time, failure }) => time != null && [`starts nothing for ${span(time)}: ${failure ?? "a start failed"}`, "bad"];

export function stateOfPool(pool) {
  const { failure, problem, removing } = pool;
  const signs = [
    pool.waiting > 0 && ["at its limit", "warn"],
    stressed(pool),
    removing && [`being removed (${removing})`, "warn"],
    throttled(pool) || (failure != null && [`its last start failed: ${failure}`, "bad"]),
  ];
  if (signs.some(Boolean)) return stateOf(signs);
  return problem == null ? mood("ok", "good") : mood(problem.kind.replaceAll("_", " "), moodOf(problem.severity));
}

// Returns the mood in which a severity is shown; `ok` means that there is no problem.
export const moodOf = (severity) => ({ ok: "good", warning: "warn" })[severity] ?? "bad";

// How the processes of a pool are confined, and which layers of their cell this machine lacks.
export function cellOfPool({ sandbox }) {
  if (sandbox == null) return "";
  if (sandbox.mode === "off") return mood("off", "bad");
  if (sandbox.error != null) return mood(`${sandbox.mode}: ${sandbox.error}`, "bad");
  const missing = Object.keys(sandbox.missing);
  if (missing.length === 0) return sandbox.mode;
  return mood(`${sandbox.mode}, without ${missing.join(", ")}`, "warn");
}

// Why a service does not accept connections.
const CLOSED = {
  at_limit: "at its limit: new connections wait in the system's queue",
  throttled: "its pool is throttled",
  no_pool: "its pool does not exist",
  accept_failed: "the system has no descriptor or memory for a connection",
  draining: "the daemon is drained",
  stopping: "it is stopping",
};

export const stateOfService = (service) => stateOf([
  service.listening ? ["accepts", "good"] : [`does not accept: ${CLOSED[service.closed] ?? service.closed}`, "warn"],
  stressed(service),
  throttled(service),
]);

// Names a client by its user, and its process or address, as far as known.
export function holderOf(holder) {
  if (!holder) return "";
  const user = holder.user ?? (holder.uid == null ? null : `uid ${holder.uid}`);
  const from = holder.pid == null ? holder.peer : `pid ${holder.pid}`;
  return [user, from].filter((part) => part != null).join(", ") || `client ${holder.client}`;
}
