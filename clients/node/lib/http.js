"use strict";
// The calls that run functions over HTTP.

const http = require("node:http");
const https = require("node:https");
const { Readable } = require("node:stream");
const { pipeline } = require("node:stream/promises");
const { ProtocolError, SetteeError, Unavailable, serviceError } = require("./errors.js");
const { LineCutter, REPLY_BYTES_MAX, decode } = require("./wire.js");

// The most connections of one client, which is the most calls at a time; others wait.
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

const needsSocket = (call) =>
  serviceError({ name: "bad_request", reason: `'${call}' needs a socket`, fault: "client", retry: false });

// Takes the errors of Node for what they mean; those of our own, and of the caller's rows, stay.
const lost = (error, { socket }, { host }) => {
  if (error instanceof SetteeError) return error;
  return new Unavailable(`no answer over HTTP from ${host}: ${error.message}`, true, error, socket);
};

// Makes the `error` object of an answer. Errors that the pool did not make have no fault and no retry.
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
  #auth;
  #client;
  #agent;
  #silenceMs;

  constructor(url, login, tls, silenceMs) {
    this.#silenceMs = silenceMs;
    this.#url = url;
    this.#auth = login && `${login.name}:${login.password}`;
    this.#client = url.protocol === "https:" ? https : http;
    this.#agent = new this.#client.Agent({ ...tls, keepAlive: true, maxSockets: CONNECTIONS_MAX });
  }

  async connection() {
    throw needsSocket("get_proc");
  }

  async call(name, args, signal) {
    const request = this.#request(name, "application/json", args.request_id, signal);
    try {
      request.end(JSON.stringify(args));
      const answer = await answerTo(request);
      const text = await textOf(answer);
      if (answer.statusCode === 200) return decode(text);
      const error = errorOf(answer.statusCode, text);
      return { ...error, error };
    } catch (error) {
      request.destroy();
      throw lost(error, request, this.#url);
    }
  }

  // Renders rows: yields the response first, then each piece of the body as it comes, while rows are sent.
  async *list(args, rows, signal) {
    const request = this.#request("list", "application/x-ndjson", args.request_id, signal);
    request.setTimeout(this.#silenceMs, () => request.destroy(new Error(`nothing came for ${this.#silenceMs} ms`)));
    let failure;
    const sent = pipeline(Readable.from(linesOf(args, rows, (error) => (failure ??= error))), request);
    // A function that reads no more rows ends the answer; a broken connection is seen where the answer is read.
    sent.catch(() => {});
    try {
      const answer = await answerTo(request);
      if (answer.statusCode !== 200) throw serviceError(errorOf(answer.statusCode, await textOf(answer)));
      const lines = new LineCutter();
      for await (const piece of answer) {
        for (const line of lines.push(piece)) {
          const made = decode(line);
          if ("error" in made) throw serviceError(errorOf(200, line));
          yield made.response ?? made.chunk;
        }
      }
    } catch (error) {
      if (signal?.aborted) throw signal.reason;
      throw failure ?? lost(error, request, this.#url);
    } finally {
      request.destroy();
    }
  }

  close() {
    this.#agent.destroy();
  }

  #request(call, type, requestId, signal) {
    if (!PATHS.has(call)) throw needsSocket(call);
    const headers = { "Content-Type": type, ...(requestId && { "X-Request-Id": requestId }) };
    const options = { method: "POST", headers, auth: this.#auth, agent: this.#agent, signal };
    return this.#client.request(new URL(`/_query/${PATHS.get(call)}`, this.#url), options);
  }
}

const answerTo = (request) =>
  new Promise((resolve, reject) => request.once("response", resolve).on("error", reject));

async function* linesOf(args, rows, failed) {
  yield `${JSON.stringify(args)}\n`;
  try {
    for await (const row of rows) yield `${JSON.stringify(row)}\n`;
  } catch (error) {
    failed(error);
    throw error;
  }
}

module.exports = { HttpTransport };
