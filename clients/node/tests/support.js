"use strict";
// Shared by the client's tests: the addresses of the service under test, and a service that follows a script.

const fs = require("node:fs");
const http = require("node:http");
const net = require("node:net");
const readline = require("node:readline");
const { Client } = require("settee");

// The service's addresses, with the user and the password for TCP and HTTP.
const { SETTEE_UNIX: UNIX, SETTEE_TCP: TCP, SETTEE_HTTP: HTTP, SETTEE_CALLS: CALLS } = process.env;
const TABLE = JSON.parse(fs.readFileSync(CALLS, "utf8"));

// Maximum time until an expected event, in milliseconds.
const DEADLINE = 20_000;

const withDdoc = (args) => args.map((argument) => (argument === "DDOC" ? TABLE.ddoc : argument));

const camel = (name) => name.replace(/_(.)/g, (_all, letter) => letter.toUpperCase());

// The table's options under this client's names.
function optionsOf({ timeout, ...rest }) {
  const options = Object.fromEntries(Object.entries(rest).map(([name, value]) => [camel(name), value]));
  return timeout ? { ...options, timeoutMs: timeout * 1000 } : options;
}

// Makes a call of the table. Arguments omitted before the options are undefined.
function make(client, [method, args, options]) {
  const call = client[camel(method)];
  const all = withDdoc(args);
  if (["show", "update"].includes(method)) all.length = 4;
  return call.apply(client, [...all, optionsOf(options)]);
}

async function collect(values) {
  const all = [];
  for await (const value of values) all.push(value);
  return all;
}

// Waits until `happened()` is true.
async function until(happened) {
  for (const end = Date.now() + DEADLINE; !happened(); await new Promise(setImmediate)) {
    if (Date.now() > end) throw new Error("timed out");
  }
}

// Addresses for an operator's calls, with the options.
const MANAGED = [[UNIX, {}], [HTTP, { user: "root", password: "secret" }]];

// Makes an operator's request that the client has no method for.
async function order(method, path, body = undefined) {
  const headers = { Authorization: `Basic ${btoa("root:secret")}`, "Content-Type": "application/json" };
  const { ok } = await fetch(`http://${HTTP.split("@")[1]}${path}`, { method, body, headers });
  if (!ok) throw new Error(`${method} ${path}`);
}

// Calls `use` with the address of a proxy to the service, and with a function that returns the bytes sent through it.
async function counting(address, use) {
  const [before, target] = address.split("@");
  const [host, port] = target.split(":");
  let sent = 0;
  const sockets = new Set();
  const server = net.createServer((socket) => {
    const service = net.connect({ host, port: Number(port) });
    for (const end of [socket, service]) sockets.add(end.on("error", () => {}));
    socket.on("data", (data) => (sent += data.length));
    socket.pipe(service).pipe(socket);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    await use(`${before}@127.0.0.1:${server.address().port}`, () => sent);
  } finally {
    sockets.forEach((socket) => socket.destroy());
    await new Promise((resolve) => server.close(resolve));
  }
}

// A service on a TCP port: `serve(request, reply)` is called for each line. Without `lineMax` it is an old one, which does
// not know the call `limits`.
async function scripted(serve, use, lineMax = undefined, more = {}) {
  const sockets = new Set();
  const server = net.createServer((socket) => {
    sockets.add(socket);
    const reply = (message) => socket.write(`${JSON.stringify(message)}\n`);
    const limits = lineMax ? { ok: { line_max: lineMax, ...more } } : { error: { name: "bad_request" } };
    readline.createInterface(socket).on("line", (line) => {
      const request = JSON.parse(line);
      if (request.call === "limits") reply({ id: request.id, ...limits });
      else serve(request, reply);
    });
    server.connections_made = (server.connections_made ?? 0) + 1;
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    await use(`tcp:127.0.0.1:${server.address().port}`, server);
  } finally {
    // A client left open by a failed test would keep the server from closing.
    sockets.forEach((socket) => socket.destroy());
    await new Promise((resolve) => server.close(resolve));
  }
}

// An HTTP server that refuses the first `times` requests as busy. Returns the paths of all requests.
async function busy(times, use) {
  const tries = [];
  const server = http.createServer((request, response) => {
    const isOver = tries.push(request.url) > times;
    const answer = isOver ? { ok: [] } : { error: "too_many_requests", reason: "no room" };
    response.writeHead(isOver ? 200 : 503).end(JSON.stringify(answer));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const client = new Client(`http://127.0.0.1:${server.address().port}/`, { retryFor: 20 });
  try {
    await use(client);
  } finally {
    client.close();
    await new Promise((resolve) => server.close(resolve));
  }
  return tries;
}

// An HTTP server that never answers.
async function silent(use) {
  const server = net.createServer((socket) => socket.on("error", () => {}).resume());
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    await use(`http://127.0.0.1:${server.address().port}/`);
  } finally {
    await new Promise((resolve) => server.close(resolve));
  }
}

module.exports = {
  UNIX, TCP, HTTP, ADDRESSES: [UNIX, TCP, HTTP], MANAGED, TABLE, camel, make, collect, counting, order, scripted, busy, silent,
  until,
};
