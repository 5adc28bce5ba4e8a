"use strict";
// The client: makes calls, retries them, and converts replies to values, reports and errors.

const { setMaxListeners } = require("node:events");
const net = require("node:net");
const { setTimeout: sleep } = require("node:timers/promises");
const { CallTimeout, ClientClosed, ProtocolError, Unavailable, mistake, serviceError } = require("./errors.js");
const { HttpTransport } = require("./http.js");
const { stream } = require("./stream.js");
const { SocketTransport } = require("./wire.js");

// How long a call is retried by default (`retryFor`) when the service is unreachable or the connection is lost before
// the reply, in seconds since the first failure: longer than a restart, most of which is `shutdown_grace`.
const RETRY_SECONDS_MAX = 30;

// Delay before the first retry, in milliseconds. It doubles with each retry; a random part of up to half is
// subtracted, so that many clients do not reconnect at once.
const BACKOFF_MS_FIRST = 100;

// Maximum delay between retries, in milliseconds.
const BACKOFF_MS_MAX = 1_000;

// How long a call may take including retries, in milliseconds.
const CALL_MS_MAX = 300_000;

const REPORT = ["request_id", "pool", "logs", "logs_dropped", "errors", "errors_dropped", "cost"];

// The service's report on a call with `report: true`: its `value`, and what happened during the call.
class Report {
  constructor(reply, value) {
    this.value = value;
    for (const member of REPORT) if (member in reply) this[member] = reply[member];
  }
}

// Returns the value of a reply, or throws its error.
function valueOf(reply, reported) {
  if ("error" in reply) {
    const error = serviceError(reply.error);
    if (reported) error.report = new Report(reply, undefined);
    throw error;
  }
  if (!("ok" in reply)) throw new ProtocolError("a reply has neither 'ok' nor 'error'");
  return reported ? new Report(reply, reply.ok) : reply.ok;
}

// Throws for a reply of a service that is stopping: a retry may reach its successor.
function unlessStopping(reply) {
  if (["shutting_down", "draining"].includes(reply.error?.name)) throw serviceError(reply.error);
  return reply;
}

// Maps a value, alone or in its report.
function change(outcome, make) {
  return outcome instanceof Report ? new Report(outcome, make(outcome.value)) : make(outcome);
}

// The result of a list function: the `response`, and an iterator over the pieces of its body.
class Chunks {
  #pieces;

  constructor(response, pieces) {
    this.response = response;
    this.#pieces = pieces;
  }

  // `made` yields the response first.
  static async of(made) {
    const { value } = await made.next();
    if (typeof value !== "object") throw new ProtocolError("a list without a response");
    return new Chunks(value, made);
  }

  [Symbol.asyncIterator]() {
    return this.#pieces;
  }

  async close() {
    await this.#pieces.return();
  }
}

async function* whole({ response, chunks }) {
  yield response;
  yield* chunks;
}

// A process that this client holds.
class Proc {
  // Why the service revoked the process: an object with `name` and `reason`; null until then.
  down = null;
  #connection;
  #bounded;
  #abandoned = false;

  constructor(connection, lent, bounded) {
    const { proc: token, pool, lang, os_pid: osPid, config = {} } = lent;
    Object.assign(this, { token, pool, lang, osPid, config });
    this.#connection = connection;
    this.#bounded = bounded;
    connection.downs.set(token, (notice) => (this.down = notice));
  }

  // Makes the process forget its functions; must be the first prompt.
  reset() {
    return this.prompt(["reset", this.config]);
  }

  // Sends a command, such as `["map_doc", doc]`, and returns the answer of the process.
  async prompt(command, { timeoutMs, signal } = {}) {
    const reply = this.#reply("prompt", { data: command, timeout_ms: timeoutMs }, signal);
    return valueOf(await reply.catch((error) => {
      this.#abandoned ||= error instanceof CallTimeout || Boolean(signal?.aborted);
      throw error;
    }));
  }

  // Sets the timeout of prompts without their own.
  async setTimeout(timeoutMs) {
    return valueOf(await this.#reply("set_timeout", { timeout_ms: timeoutMs }));
  }

  // Returns the process; with "fail" it is not used again. False if this client does not hold it.
  async retProc(status = "ok") {
    this.#connection.downs.delete(this.token);
    try {
      // A process still busy for a caller who gave up must not be lent again.
      return valueOf(await this.#reply("ret_proc", { status: this.#abandoned ? "fail" : status }));
    } catch (error) {
      // The service reclaims the processes of a lost connection.
      if (error instanceof Unavailable || error instanceof ClientClosed) return false;
      throw error;
    }
  }

  async [Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]() {
    await this.retProc();
  }

  #reply(call, args, caller = undefined) {
    const attempt = (signal) => this.#connection.call(call, { proc: this.token, ...args }, signal);
    return this.#bounded(call, attempt, caller);
  }
}

// The members that have a value.
const given = (options) => Object.entries(options).filter(([_name, value]) => value !== undefined);

// Options whose names differ from the service's.
const OPTIONS = { timeoutMs: "timeout_ms", requestId: "request_id" };

function argumentsOf({ signal: _signal, ...options }) {
  return Object.fromEntries(given(options).map(([name, value]) => [OPTIONS[name] ?? name, value]));
}

// A pool or a group has its own language.
function languageOf({ pool, group }) {
  return { lang: (pool ?? group) === undefined ? "javascript" : undefined };
}

// A client of the service at an address as the service prints it: `unix:PATH` or a path, `tcp:HOST:PORT`,
// `tls:HOST:PORT`, `http://HOST:PORT/`, `https://HOST:PORT/`. `tls` are options of node:tls, such as `ca`. Connects
// at the first call. Calls may be concurrent.
class Client {
  #transport;
  // How long a call is retried, and whether errors with `retry` are retried too.
  #retryMs;
  #retriesErrors;
  #callMs;
  // Aborted when the client is closed.
  #closing = new AbortController();

  constructor(address, { user, password, tls, retryFor, callMs = CALL_MS_MAX } = {}) {
    this.#transport = transportTo(address, user, password, tls, callMs);
    this.#retryMs = (retryFor ?? RETRY_SECONDS_MAX) * 1000;
    this.#retriesErrors = retryFor !== undefined;
    this.#callMs = callMs;
  }

  // For each document and each function, a list of `[key, value]`. Returns a promise for an array of documents; for any
  // other iterable, synchronous or not, an async iterator that yields results as documents arrive.
  map(funs, docs, options = {}) {
    const call = (batch, signal) =>
      this.#function("map_docs", { ...languageOf(options), funs, docs: batch }, { ...options, signal });
    if (Array.isArray(docs)) return call(docs, options.signal);
    if (options.report) throw mistake("documents from an iterable have no report: pass an array");
    return stream(call, docs, options.signal);
  }

  // A result for each function, from rows `[[key, id], value]`.
  reduce(funs, rows, options = {}) {
    return this.#function("reduce", { ...languageOf(options), funs, rows }, options);
  }

  // A result for each function, from earlier results: rows with a value for each function.
  rereduce(funs, values, options = {}) {
    return this.#function("rereduce", { ...languageOf(options), funs, values }, options);
  }

  // True; throws a CompilationError for a function that does not compile.
  compile(fun, options = {}) {
    return this.#function("try_compile", { ...languageOf(options), name: "function", fun }, options);
  }

  // The documents that match a Mango selector. Each needs an `_id`; design documents never match.
  async select(selector, docs, options = {}) {
    const definition = { fields: { _id: "asc" }, partial_filter_selector: selector };
    const outcome = await this.#function("map_docs", { lang: "query", funs: [definition], docs }, options);
    const found = change(outcome, (rows) => docs.filter((_doc, index) => rows[index][0].length > 0));
    if ((found.value ?? found).length === 0) await this.#check(selector, options);
    return found;
  }

  // For each document whether it passes a filter function.
  filter(db, ddoc, name, docs, options = {}) {
    return this.#function("filter_docs", { db, ddoc, name, docs }, options);
  }

  // For each document whether a view's map function emits something.
  filterView(db, ddoc, name, docs, options = {}) {
    return this.#function("filter_view", { db, ddoc, name, docs }, options);
  }

  // For each of `{newDoc, oldDoc}` true, `{forbidden: M}` or `{unauthorized: M}`.
  validate(db, ddoc, edits, options = {}) {
    return this.#function("validate_docs", { db, ddoc, docs: edits }, options);
  }

  // The response of a show function: `code`, `headers`, `body` and so on.
  show(db, ddoc, name, doc = null, options = {}) {
    return this.#function("show", { db, ddoc, name, doc }, options);
  }

  // `[doc or null, response]`; writing the document is up to the caller.
  update(db, ddoc, name, doc = null, options = {}) {
    return this.#function("update", { db, ddoc, name, doc }, options);
  }

  // The rewritten request; null if no rule matches.
  rewrite(db, ddoc, req, options = {}) {
    return this.#function("rewrite", { db, ddoc, req }, options);
  }

  // An async iterable of the pieces of the body, with the `response`. Over HTTP, rows (which may be an async
  // iterable) are sent as they are produced, and pieces arrive as they are made.
  async list(db, ddoc, name, rows, options = {}) {
    const args = { db, ddoc, name, head: {}, req: {} };
    options.signal?.throwIfAborted();
    if (this.#transport.streams && !options.report) {
      if (this.#closing.signal.aborted) throw new ClientClosed();
      return Chunks.of(this.#transport.list({ ...args, ...argumentsOf(options) }, rows, options.signal));
    }
    const all = [];
    for await (const row of rows) all.push(row);
    const outcome = await this.#function("list", { ...args, rows: all }, options);
    const chunks = await Chunks.of(whole(outcome instanceof Report ? outcome.value : outcome));
    return change(outcome, () => chunks);
  }

  // The state of each process: `total_rows` and `procs`, the longest running first.
  ps(pool = undefined) {
    return this.#manage("GET", "/_procs", { pool });
  }

  // Ends a process by its `name` in `ps`, with `now` at once. Returns `how`, and its row, `proc`.
  async kill(name, { now = false } = {}) {
    if (!/^[^/]+\/\d+$/.test(name)) throw mistake(`no process is named '${name}': write it as POOL/NUMBER, as ps does`);
    return this.#manage("DELETE", `/_procs/${name.split("/").map(encodeURIComponent).join("/")}`, { now });
  }

  // The service's problems and their remedies: `status` and `problems`. With `fleet`, the worst `status` of all
  // daemons, and each one's report: `daemons`.
  health({ fleet = false } = {}) {
    return this.#manage("GET", "/_health", { fleet });
  }

  // The state of each pool: `total_rows` and `pools`.
  pools() {
    return this.#manage("GET", "/_pools");
  }

  // The cost of each database since counting began: `since`, `total_rows` and `tenants`.
  tenants(query = {}) {
    return this.#manage("GET", "/_tenants", query);
  }

  // Replications: `total_rows` and `jobs`.
  jobs(query = {}) {
    return this.#manage("GET", "/_scheduler/jobs", query);
  }

  // Any call of docs/socket.md by its own name, with its own arguments. It is not retried if the connection is lost.
  async call(name, args = {}) {
    const { reply } = await this.#persist(name, (signal) => this.#reply("call", name, args, signal), false);
    return valueOf(reply);
  }

  // Borrows a process, to be returned with `retProc`. Its first prompt is `reset`.
  async getProc(options = {}) {
    const { connection, reply } = await this.#persist("get_proc", async (signal) => {
      const connection = await this.#transport.connection();
      const reply = await connection.call("get_proc", argumentsOf(options), signal);
      return { connection, reply: unlessStopping(reply) };
    }, true, options.signal);
    return new Proc(connection, valueOf(reply), (...attempt) => this.#bounded(...attempt));
  }

  // Borrows a process and resets it. Returns the process after a `block`, and the block's value; without a block the
  // caller returns the process (`await using`).
  async lease(options, block) {
    const proc = await this.getProc(options);
    let kept = false;
    try {
      await proc.reset();
      kept = !block;
      return block ? await block(proc) : proc;
    } finally {
      if (!kept) await proc.retProc();
    }
  }

  close() {
    this.#closing.abort(new ClientClosed());
    this.#transport.close();
  }

  async #manage(method, path, query = {}) {
    const url = `${path}?${new URLSearchParams(given(query))}`;
    const attempt = (signal) => this.#reply("manage", method, url, signal);
    const { reply } = await this.#persist(`${method} ${url}`, attempt, method === "GET");
    return valueOf(reply);
  }

  // Runs functions. That has no side effects, so it is retried if the connection is lost.
  async #function(name, args, options) {
    const all = { ...args, ...argumentsOf(options) };
    const { reply } = await this.#persist(name, (signal) => this.#reply("call", name, all, signal), true, options.signal);
    return valueOf(reply, all.report);
  }

  // Throws for an invalid selector: `map_docs` accepts a definition with one, which matches nothing.
  async #check(selector, options) {
    const ddoc = { _id: "_design/selector", language: "query", validate_doc_update: selector };
    await this.validate("selector", ddoc, [{ newDoc: {} }], options);
  }

  async #reply(kind, ...request) {
    return { reply: unlessStopping(await this.#transport[kind](...request)) };
  }

  // Retries until a reply is final or the time is up. A call that must not be made twice is retried only if it was
  // not sent.
  #persist(name, attempt, again, caller = undefined) {
    return this.#bounded(name, async (signal) => {
      let pause = BACKOFF_MS_FIRST;
      for (let until; ; pause = Math.min(2 * pause, BACKOFF_MS_MAX)) {
        let outcome;
        let lost;
        try {
          outcome = await attempt(signal);
        } catch (error) {
          if (!(error instanceof Unavailable) || !error.retry || (error.sent && !again)) throw error;
          lost = error;
        }
        const waitMs = lost ? 0 : this.#waitAfter(outcome.reply, again);
        until ??= performance.now() + this.#retryMs;
        const left = until - performance.now();
        if (waitMs === null || waitMs >= left) {
          if (lost) throw lost;
          return outcome;
        }
        await sleep(Math.min(Math.max(waitMs, pause * (0.5 + Math.random() / 2)), left), undefined, { signal });
      }
    }, caller);
  }

  // Delay before a retry after a reply, in milliseconds; null for no retry.
  #waitAfter({ error }, again) {
    return this.#retriesErrors && again && error?.retry ? (error.retry_after_ms ?? 0) : null;
  }

  // Makes a call, aborted when it takes too long, the client is closed, or the signal `caller` is aborted.
  async #bounded(name, attempt, caller = undefined) {
    const control = new AbortController();
    const ends = [this.#closing.signal, ...(caller ? [caller] : [])];
    for (const end of ends) if (end.aborted) throw end.reason;
    const giveUp = ({ target }) => control.abort(target.reason);
    // Every pending call is a listener: lifts the number above which Node warns.
    setMaxListeners(0, ...ends);
    for (const end of ends) end.addEventListener("abort", giveUp);
    const reason = `'${name}' took longer than callMs, ${this.#callMs} ms`;
    const late = serviceError({ name: "timeout", reason, phase: "reply", fault: "settee", retry: true });
    const timer = setTimeout(() => control.abort(late), this.#callMs);
    const expiry = new Promise((_resolve, reject) => control.signal.addEventListener("abort", () => reject(control.signal.reason)));
    try {
      return await Promise.race([attempt(control.signal), expiry]);
    } finally {
      clearTimeout(timer);
      for (const end of ends) end.removeEventListener("abort", giveUp);
    }
  }
}

function transportTo(address, user, password, tls, callMs) {
  const [, scheme, rest] = /^([^:/]*):(.*)$/.exec(address) ?? [null, /\/|\.sock$/.test(address) ? "unix" : null, address];
  if (scheme === "unix") {
    const known = login(user, password);
    const beside = new HttpTransport(new URL("http://localhost"), known, {}, callMs, `${rest.replace(/\.sock$/, "")}.http.sock`);
    return new SocketTransport({ path: rest }, `unix:${rest}`, known, null, beside);
  }
  if (!SCHEMES.includes(scheme)) {
    throw badAddress(address, "has no known scheme: write unix:PATH, tcp:HOST:PORT, tls:HOST:PORT or http://HOST:PORT/");
  }
  const isHttp = scheme.startsWith("http");
  const url = readUrl(address, isHttp ? address : `${scheme}://${rest.replace(/^\/*/, "")}`);
  if (!url.hostname) throw badAddress(address, "names no host");
  if (!url.port && !isHttp) throw badAddress(address, "names no port");
  const known = login(user ?? decodeURIComponent(url.username), password ?? decodeURIComponent(url.password));
  if (isHttp) return new HttpTransport(url, known, tls, callMs);
  const host = url.hostname.replace(/^\[(.*)\]$/, "$1");
  const where = { host, port: Number(url.port) };
  const name = `${scheme}:${url.host}`;
  if (scheme === "tcp") return new SocketTransport(where, name, known);
  return new SocketTransport(where, name, known, { ...(net.isIP(host) ? {} : { servername: host }), ...tls });
}

const SCHEMES = ["tcp", "tls", "http", "https"];

function readUrl(address, text) {
  try {
    return new URL(text);
  } catch (error) {
    throw badAddress(address, `cannot be read: ${error.message}`);
  }
}

// Names the address without its user and password.
const badAddress = (address, what) => mistake(`the address '${String(address).replace(/^([^:/]*:\/*).*@/s, "$1")}' ${what}`);

const login = (user, password = "") => (user ? { name: user, password } : undefined);

module.exports = { ...require("./errors.js"), Client, Proc, Chunks, Report };
