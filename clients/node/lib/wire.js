"use strict";
// Lines of JSON over a Unix or a TCP socket, or over TLS: requests out, replies in, matched by their ids.

const { createHash } = require("node:crypto");
const net = require("node:net");
const tls = require("node:tls");
const { ProtocolError, Unavailable, mistake, serviceError } = require("./errors.js");

// The longest reply that is read, in bytes.
const REPLY_BYTES_MAX = 256 << 20;

// The longest line that every service accepts, in bytes. Before a longer one, the service's limit is requested.
const LINE_BYTES_SURE = 1024;

// The limit of a service too old to report it, in bytes: the default of its configuration.
const LINE_BYTES_DEFAULT = 64 << 20;

// Minimum size of design documents that are sent once and then named by the digest of their text, in bytes.
const DDOC_BYTES_MIN = 1024;

// Maximum design documents remembered as sent; then all are forgotten, and sent again.
const SENT_DDOCS_MAX = 1024;

// Maximum depth of the search for a member that cannot be sent.
const LEVELS_SEARCHED = 100;

// Maximum calls in flight on a connection; further calls wait here instead of for a process.
const CALLS_MAX = 512;

// Calls exempt from `CALLS_MAX`: most concern a process that this connection holds, which waiting calls may need.
const AT_ONCE = ["auth", "prompt", "ret_proc", "set_timeout", "cancel"];

// How long connecting and logging in may take together, in milliseconds.
const CONNECT_MS_MAX = 10_000;

// Parses an object sent by the service.
function decode(text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new ProtocolError(`'${text.slice(0, 100)}' is not JSON: ${error.message}`);
  }
  if (typeof value !== "object" || value === null) throw new ProtocolError(`'${text.slice(0, 100)}' is not an object`);
  return value;
}

// Returns the value of a JSON text; throws if an integer lost precision, which JSON.parse does not report.
function exact(value, text) {
  if (!/\d{16}/.test(text)) return value;
  // Every other piece is in a string.
  const pieces = text.replace(/\\./g, "").split('"').filter((_piece, at) => at % 2 === 0);
  for (const [number] of pieces.flatMap((piece) => [...piece.matchAll(/[-+.\deE]{16,}/g)])) {
    const read = Number(number);
    const isSame = !/^-?\d+$/.test(number) || String(read) === number || (isFinite(read) && BigInt(read) === BigInt(number));
    if (!isSame) throw new RangeError(`the reply has ${number}, which a JavaScript number cannot hold: let the function return a string`);
  }
  return value;
}

// Serializes a caller's value. A member that JSON cannot represent is a TypeError that names it.
function encode(value) {
  try {
    return JSON.stringify(value);
  } catch (error) {
    throw new TypeError(`cannot send '${memberAtFault(value) ?? "an argument"}': ${error.message}`, { cause: error });
  }
}

// The path of the first member that is a BigInt, or that contains itself.
function memberAtFault(value, path = "", above = new Set()) {
  if (typeof value === "bigint" || above.has(value)) return path;
  if (typeof value !== "object" || value === null || above.size === LEVELS_SEARCHED) return null;
  above.add(value);
  for (const [name, member] of Object.entries(value)) {
    const at = Array.isArray(value) ? `${path}[${name}]` : path ? `${path}.${name}` : name;
    const found = memberAtFault(member, at, above);
    if (found) return found;
  }
  above.delete(value);
  return null;
}

// Throws for a call that the service would refuse as too long.
function checkLength(length, limit, key) {
  if (length <= limit) return;
  const bound = `the ${limit} bytes that the service takes ([server] ${key})`;
  throw mistake(`the call has ${length} bytes, more than ${bound}: send less at a time, or raise the bound`);
}

// Cuts pieces into lines. The `readline` of Node also cuts at U+2028, which JSON may contain.
class LineCutter {
  #pieces = [];
  #length = 0;

  *push(piece) {
    for (let end; (end = piece.indexOf(10)) >= 0; piece = piece.subarray(end + 1)) {
      this.#add(piece.subarray(0, end));
      const line = Buffer.concat(this.#pieces).toString();
      this.#pieces = [];
      this.#length = 0;
      yield line;
    }
    this.#add(piece);
  }

  #add(piece) {
    this.#length += piece.length;
    if (this.#length > REPLY_BYTES_MAX) throw new ProtocolError(`a reply is longer than ${REPLY_BYTES_MAX} bytes`);
    this.#pieces.push(piece);
  }
}

// The design documents already sent to a service: later calls name them by the digests of their texts.
class SentDdocs {
  #sent = new Set();

  // Makes a call by `send`; the digest replaces a text that was sent before, if the service accepts digests.
  async call(args, takesDigests, send) {
    const { db, ddoc } = args;
    // Encoded as the member `ddoc`, so that an error has the full path.
    const text = Buffer.from(encode({ ddoc }).slice(8, -1));
    if (text.length < DDOC_BYTES_MIN || typeof ddoc !== "object") return send(args);
    const sha256 = createHash("sha256").update(text).digest("hex");
    const key = JSON.stringify([db, sha256]);
    if (this.#sent.has(key) && (await takesDigests())) {
      const reply = await send({ ...args, ddoc: { _id: ddoc._id, sha256 } });
      if (reply.error?.name !== "unknown_ddoc") return reply;
    }
    const reply = await send(args);
    if (this.#sent.size >= SENT_DDOCS_MAX) this.#sent.clear();
    this.#sent.add(key);
    return reply;
  }
}

// One connection. Many calls may wait on it at the same time; when it ends, each fails.
class Connection {
  lost = null;
  // Token of a held process -> what to call when the service revokes the process.
  downs = new Map();
  #socket;
  #waiting = new Map();
  #lines = new LineCutter();
  #last = 0;
  // Resolved while the socket takes lines; `#resume` resolves it.
  #room = Promise.resolve();
  #resume = null;
  // The number of calls in flight, and the functions that start the waiting ones.
  #inHand = 0;
  #turns = [];
  // Promise of the longest line that the service accepts, and whether it accepts digests of design documents.
  #limits = null;
  #ddocs = new SentDdocs();

  constructor(socket) {
    this.#socket = socket;
    for (const event of ["drain", "close"]) socket.on(event, () => this.#makeRoom());
    socket.on("data", (piece) => this.#read(piece));
    socket.on("error", (error) => this.#end(new Unavailable(`the connection broke: ${error.message}`, true, error)));
    socket.on("close", () => this.#end(new Unavailable("the connection was closed")));
  }

  // Sends a request and returns its reply, even if that is an error. When `signal` is aborted, the call fails; with
  // `cancels`, the service is notified and ends the call's functions.
  async call(name, args, signal, cancels = false) {
    if (!args.ddoc) return this.#call(name, args, signal, cancels);
    const takesDigests = async () => (await this.#askLimitsOnce()).ddoc_sha256 === true;
    return this.#ddocs.call(args, takesDigests, (shorter) => this.#call(name, shorter, signal, cancels));
  }

  async #call(name, args, signal, cancels) {
    const id = ++this.#last;
    const line = `${encode({ ...args, id, call: name })}\n`;
    const bytes = Buffer.byteLength(line);
    if (this.#limits || bytes > LINE_BYTES_SURE) {
      // Lines sent while the limit is being requested wait too, so that prompts keep their order.
      const { line_max: lineMax = LINE_BYTES_DEFAULT } = await this.#askLimitsOnce();
      checkLength(bytes - 1, lineMax, "line_max");
    }
    if (AT_ONCE.includes(name)) return this.#ask(id, line, signal, cancels);
    if (this.#inHand < CALLS_MAX) this.#inHand++;
    else await new Promise((turn) => this.#turns.push(turn));
    try {
      return await this.#ask(id, line, signal, cancels);
    } finally {
      const next = this.#turns.shift();
      if (next) next();
      else this.#inHand--;
    }
  }

  #askLimitsOnce() {
    this.#limits ??= this.#askLimits();
    return this.#limits;
  }

  async #askLimits() {
    const id = ++this.#last;
    const asked = this.#ask(id, `${JSON.stringify({ id, call: "limits" })}\n`);
    const { ok } = await asked.catch(() => ({}));
    return ok ?? {};
  }

  async #ask(id, line, signal, cancels) {
    await this.#room;
    if (this.lost) throw this.lost;
    return new Promise((resolve, reject) => {
      const settle = (how) => (value) => {
        this.#waiting.delete(id);
        signal?.removeEventListener("abort", giveUp);
        how(value);
      };
      const giveUp = () => {
        settle(reject)(signal.reason);
        if (cancels) this.#send(`${JSON.stringify({ id: 0, call: "cancel", request: id })}\n`);
      };
      if (signal?.aborted) return reject(signal.reason);
      signal?.addEventListener("abort", giveUp);
      this.#waiting.set(id, { resolve: settle(resolve), reject: settle(reject) });
      this.#send(line);
    });
  }

  close() {
    this.#end(new Unavailable("the connection was closed"));
  }

  // When the service reads too slowly, later calls wait for room.
  #send(line) {
    if (this.#socket.write(line) || this.#resume) return;
    this.#room = new Promise((resolve) => (this.#resume = resolve));
  }

  #makeRoom() {
    this.#resume?.();
    this.#resume = null;
  }

  #read(piece) {
    try {
      for (const line of this.#lines.push(piece)) this.#take(decode(line), line);
    } catch (error) {
      this.#end(error);
    }
  }

  #take(line, text) {
    if ("down" in line) {
      this.downs.get(line.down)?.(line);
    } else if (line.id === null || line.id === undefined) {
      // The service could not read a request, and says why before it closes.
      throw serviceError(line.error);
    } else if (this.#waiting.has(line.id)) {
      const { resolve, reject } = this.#waiting.get(line.id);
      try {
        resolve(exact(line, text));
      } catch (error) {
        reject(error);
      }
    } else if (line.ok?.proc) {
      // The caller gave up while the service lent it a process.
      this.#send(`${JSON.stringify({ id: 0, call: "ret_proc", proc: line.ok.proc })}\n`);
    }
  }

  #end(reason) {
    this.lost ??= reason;
    this.#socket.destroy();
    for (const waiter of this.#waiting.values()) waiter.reject(this.lost);
  }
}

// Calls over one connection, opened for the first call and reopened after it was lost. Management requests go over
// `http`, the transport of the HTTP socket next to this one.
class SocketTransport {
  // All pieces of a list come in one reply.
  streams = false;
  #where;
  #address;
  #login;
  #protection;
  #http;
  #connection = null;
  #connecting = null;

  // `protection`: options of node:tls; null: no TLS.
  constructor(where, address, login, protection = null, http = undefined) {
    this.#where = where;
    this.#address = address;
    this.#login = login;
    this.#protection = protection;
    this.#http = http;
  }

  async call(name, args, signal) {
    return (await this.connection()).call(name, args, signal, true);
  }

  async manage(...request) {
    if (this.#http) return this.#http.manage(...request);
    throw mistake(`the service is not managed at ${this.#address}: use an http:// or https:// address`);
  }

  async connection() {
    if (this.#connection && !this.#connection.lost) return this.#connection;
    this.#connecting ??= this.#connect().finally(() => (this.#connecting = null));
    this.#connection = await this.#connecting;
    return this.#connection;
  }

  close() {
    this.#http?.close();
    this.#connection?.close();
    this.#connecting?.then((connection) => connection.close(), () => {});
  }

  async #connect() {
    const encrypted = this.#protection && { ...this.#where, ...this.#protection };
    const socket = encrypted ? tls.connect(encrypted) : net.connect(this.#where);
    const ready = encrypted ? "secureConnect" : "connect";
    const signal = AbortSignal.timeout(CONNECT_MS_MAX);
    const late = () => socket.destroy(new Error(`no connection and login within ${CONNECT_MS_MAX} ms`));
    signal.addEventListener("abort", late);
    try {
      await new Promise((resolve, reject) => socket.once(ready, resolve).once("error", reject));
      const connection = new Connection(socket);
      const reply = this.#login && (await connection.call("auth", this.#login));
      if (reply?.error) throw serviceError(reply.error);
      return connection;
    } catch (error) {
      socket.destroy();
      throw error.details ? error : new Unavailable(this.#cannot(error), false, error, socket);
    } finally {
      signal.removeEventListener("abort", late);
    }
  }

  #cannot({ code, message }) {
    if (code !== "ENOENT") return `cannot connect to ${this.#address}: ${message}`;
    return `there is no socket at ${this.#address}: no service runs, or its '[server] socket' is another`;
  }
}

module.exports = {
  SentDdocs, SocketTransport, LineCutter, checkLength, decode, encode, exact,
  LINE_BYTES_DEFAULT, LINE_BYTES_SURE, REPLY_BYTES_MAX,
};
