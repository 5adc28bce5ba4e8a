"use strict";
// Calls of functions and management requests over HTTP, also on a Unix socket.

const http = require("node:http");
const https = require("node:https");
const { Readable } = require("node:stream");
const { pipeline } = require("node:stream/promises");
const { ProtocolError, SetteeError, Unavailable, mistake, serviceError } = require("./errors.js");
const {
  LineCutter, SentDdocs, LINE_BYTES_DEFAULT, LINE_BYTES_SURE, REPLY_BYTES_MAX, checkLength, decode, encode, exact,
} = require("./wire.js");

// Maximum connections of a client, and thus its concurrent calls; further calls wait.
const CONNECTIONS_MAX = 16;

// Name of a call -> its name in the path.
const PATHS = new Map(Object.entries({
  map_docs: "map",
  reduce: "reduce",
  rereduce: "rereduce",
  finalize: "finalize",
  ddoc_prompt: "ddoc",
  validate_docs: "validate",
  filter_docs: "filter",
  filter_view: "filter_view",
  show: "show",
  list: "list",
  update: "update",
  rewrite: "rewrite",
  index_docs: "index",
  try_compile: "compile",
}));

// Error codes of a connection that was never established.
const NOT_SENT = ["ECONNREFUSED", "ENOENT", "ENOTFOUND"];

// Makes the `error` object of an answer. Errors from outside the pool carry no fault and no retry: they get defaults.
function errorOf(status, text) {
  const defaults = { fault: status < 500 ? "client" : "settee", retry: [408, 429, 503].includes(status) };
  try {
    const { error, ...rest } = decode(text);
    return { name: error, ...defaults, ...rest };
  } catch {
    return { name: `http_${status}`, reason: text.slice(0, 100), ...defaults };
  }
}

async function textOf(answer) {
  const pieces = [];
  let length = 0;
  for await (const piece of answer) {
    length += piece.length;
    if (length > REPLY_BYTES_MAX) throw new ProtocolError(`an answer is longer than ${REPLY_BYTES_MAX} bytes`);
    pieces.push(piece);
  }
  return Buffer.concat(pieces).toString();
}

// Calls over kept-alive connections.
class HttpTransport {
  streams = true;
  #url;
  #socketPath;
  #auth;
  #client;
  #agent;
  #silenceMs;
  // The longest body that the service is known to accept.
  #bodyMax = LINE_BYTES_SURE;
  // Whether the service accepts digests of design documents; null while unknown.
  #digests = null;
  #ddocs = new SentDdocs();

  constructor(url, login, tls, silenceMs, socketPath) {
    this.#silenceMs = silenceMs;
    this.#url = url;
    this.#socketPath = socketPath;
    this.#auth = login && `${login.name}:${login.password}`;
    this.#client = url.protocol === "https:" ? https : http;
    this.#agent = new this.#client.Agent({ ...tls, keepAlive: true, maxSockets: CONNECTIONS_MAX });
  }

  async connection() {
    throw mistake("'get_proc' needs a socket");
  }

  async call(name, args, signal) {
    if (!PATHS.has(name)) throw mistake(`'${name}' needs a socket`);
    return this.#ddocs.call(args, () => this.#takesDigests(signal), async (shorter) => {
      const body = encode(shorter);
      await this.#checkBody(Buffer.byteLength(body), signal);
      return this.#ask("POST", `/_query/${PATHS.get(name)}`, signal, body, args.request_id);
    });
  }

  // Asks again when no connection is open: the service may have been upgraded.
  async #takesDigests(signal) {
    if (this.#digests === null || this.#agent.totalSocketCount === 0) await this.#askLimits(signal);
    return this.#digests;
  }

  async #askLimits(signal) {
    const { ok } = await this.#ask("GET", "/_query/limits", signal);
    this.#bodyMax = ok?.body_max ?? LINE_BYTES_DEFAULT;
    this.#digests = ok?.ddoc_sha256 === true;
  }

  // Asks again before a body is refused: the service's limit may have been raised.
  async #checkBody(bytes, signal) {
    if (bytes > this.#bodyMax) await this.#askLimits(signal);
    checkLength(bytes, this.#bodyMax, "body_max");
  }

  async manage(method, path, signal) {
    const answer = await this.#ask(method, path, signal);
    return "error" in answer ? answer : { ok: answer };
  }

  async #ask(method, path, signal, body = undefined, requestId = undefined) {
    const request = this.#request(method, path, "application/json", requestId, signal);
    try {
      request.end(body);
      const answer = await answerTo(request);
      const text = await textOf(answer);
      if (answer.statusCode === 200) return exact(decode(text), text);
      const error = errorOf(answer.statusCode, text);
      return { ...error, error };
    } catch (error) {
      request.destroy();
      throw this.#lost(error, request);
    }
  }

  // Renders rows: yields the response first, then each piece of the body as it arrives, while rows are still sent.
  async *list(args, rows, signal) {
    const head = `${encode(args)}\n`;
    const request = this.#request("POST", "/_query/list", "application/x-ndjson", args.request_id, signal);
    request.setTimeout(this.#silenceMs, () => request.destroy(new Error(`nothing came for ${this.#silenceMs} ms`)));
    let failure;
    const sent = pipeline(Readable.from(linesOf(head, rows, (error) => (failure ??= error))), request);
    // A function that stops reading rows ends the answer; a broken connection surfaces where the answer is read.
    sent.catch(() => {});
    try {
      const answer = await answerTo(request);
      if (answer.statusCode !== 200) throw serviceError(errorOf(answer.statusCode, await textOf(answer)));
      const lines = new LineCutter();
      for await (const piece of answer) {
        for (const line of lines.push(piece)) {
          const made = exact(decode(line), line);
          if ("error" in made) throw serviceError(errorOf(200, line));
          yield made.response ?? made.chunk;
        }
      }
    } catch (error) {
      if (signal?.aborted) throw signal.reason;
      throw failure ?? this.#lost(error, request);
    } finally {
      request.destroy();
    }
  }

  close() {
    this.#agent.destroy();
  }

  #request(method, path, type, requestId, signal) {
    const headers = { "Content-Type": type, ...(requestId && { "X-Request-Id": requestId }) };
    const options = { method, headers, auth: this.#auth, agent: this.#agent, socketPath: this.#socketPath, signal };
    return this.#client.request(new URL(path, this.#url), options);
  }

  // Turns errors of Node into `Unavailable`, and forgets the service's limits; the client's own errors, among them
  // RangeError, pass through.
  #lost(error, { socket }) {
    if (error instanceof SetteeError || error instanceof RangeError) return error;
    this.#bodyMax = LINE_BYTES_SURE;
    this.#digests = null;
    const reason = `no answer over HTTP from ${this.#socketPath ?? this.#url.host}: ${error.message}`;
    return new Unavailable(reason, !NOT_SENT.includes(error.code), error, socket);
  }
}

const answerTo = (request) =>
  new Promise((resolve, reject) => request.once("response", resolve).on("error", reject));

async function* linesOf(head, rows, failed) {
  yield head;
  try {
    for await (const row of rows) yield `${encode(row)}\n`;
  } catch (error) {
    failed(error);
    throw error;
  }
}

module.exports = { HttpTransport };
