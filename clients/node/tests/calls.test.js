"use strict";
// Every call, over every transport.

const assert = require("node:assert/strict");
const net = require("node:net");
const { basename, dirname } = require("node:path");
const test = require("node:test");
const settee = require("settee");
const { BATCH_BYTES_MAX } = require("../node_modules/settee/lib/stream.js");
const { ADDRESSES, HTTP, TABLE, TCP, UNIX, busy, collect, counting, make, scripted, silent } = require("./support.js");

const COUNT = "function(doc) { emit(doc._id, 1) }";
const STREAM_DOCS_MAX = 300;
const HUNDRED = Array.from({ length: 100 }, (_none, number) => String(number));

// Runs a test with a client for each address.
async function everywhere(use, addresses = ADDRESSES) {
  for (const address of addresses) {
    const client = new settee.Client(address);
    try {
      await use(client, address);
    } finally {
      client.close();
    }
  }
}

test("every call returns its value", () =>
  everywhere(async (client, address) => {
    for (const call of TABLE.calls) {
      const value = await make(client, call);
      assert.deepEqual(call[0] === "list" ? await collect(value) : value, call[3], `${address} ${call[0]}`);
    }
  }));

test("every error has its class, its fault and its retry flag", () =>
  everywhere(async (client, address) => {
    for (const call of TABLE.errors) {
      const { class: kind, ...expected } = call[3];
      await assert.rejects(make(client, call), (error) => {
        assert.ok(error instanceof settee.SetteeError);
        assert.equal(error.constructor, settee[kind], `${address} ${call[0]}`);
        for (const [member, value] of Object.entries(expected)) assert.equal(error[member], value, `${address} ${call[0]}`);
        return true;
      });
    }
  }));

test("a list has a response, and its rows may come from a generator", () =>
  everywhere(async (client) => {
    async function* rows() {
      for (const key of ["0", "1", "2"]) yield { key };
    }
    const options = { head: { total_rows: 3 }, req: { query: { end: "." } } };
    const page = await client.list("shop", TABLE.ddoc, "keys", rows(), options);
    assert.deepEqual(page.response, { headers: { "X-Total": "3" } });
    assert.deepEqual(await collect(page), ["0", "1", "2", "."]);
  }));

test("a list over HTTP yields pieces before all rows are sent", () =>
  everywhere(async (client) => {
    let read;
    const isRead = new Promise((resolve) => (read = resolve));
    async function* rows() {
      yield { key: "first" };
      await isRead;
      yield { key: "second" };
    }
    const seen = [];
    for await (const piece of await client.list("shop", TABLE.ddoc, "keys", rows(), { req: { query: { end: "." } } })) {
      seen.push(piece);
      read();
    }
    assert.deepEqual(seen, ["first", "second", "."]);
  }, [HTTP]));

test("a list may be closed before its end", () =>
  everywhere(async (client) => {
    const page = await client.list("shop", TABLE.ddoc, "keys", [{ key: "a" }, { key: "b" }], { req: { query: {} } });
    await page.close();
    assert.deepEqual(await collect(page), []);
  }));

test("a function that fails after its first piece fails the list", () =>
  everywhere(async (client) => {
    const list = async () => collect(await client.list("shop", TABLE.ddoc, "breaks", [{ key: "first" }, { key: "second" }]));
    await assert.rejects(list, { name: "broken", reason: "at the second row", fault: "client" });
  }));

test("a generator of rows that throws fails the list", () =>
  everywhere(async (client) => {
    function* rows() {
      yield { key: "first" };
      throw new RangeError("no more rows");
    }
    await assert.rejects(async () => collect(await client.list("shop", TABLE.ddoc, "keys", rows())), RangeError);
  }));

test("a wrong password fails at once", async () => {
  for (const address of [TCP, HTTP]) {
    const client = new settee.Client(address, { user: "ann", password: "wrong" });
    await assert.rejects(client.map([], []), (error) => {
      assert.deepEqual([error.constructor, error.fault, error.retry], [settee.Unauthorized, "client", false]);
      return true;
    });
    client.close();
  }
});

test("calls that need a socket are refused over HTTP", () =>
  everywhere(async (client) => {
    await assert.rejects(client.call("status"), settee.BadRequest);
    await assert.rejects(client.getProc({ lang: "javascript" }), settee.BadRequest);
  }, [HTTP]));

test("a hundred calls at the same time have their own results", () =>
  everywhere(async (client) => {
    const rows = await Promise.all(HUNDRED.map((_id) => client.map([COUNT], [{ _id }], { db: "shop" })));
    assert.deepEqual(rows, HUNDRED.map((id) => [[[[id, 1]]]]));
  }));

test("no call leaves a listener behind, and any number may be in progress", async () => {
  const sockets = [];
  const warnings = [];
  const warned = ({ message }) => warnings.push(message);
  const { connect } = net;
  process.on("warning", warned);
  net.connect = (...where) => {
    sockets.push(connect(...where));
    return sockets.at(-1);
  };
  const listeners = () =>
    sockets.flatMap((socket) => socket.eventNames().map((name) => `${String(name)} ${socket.listenerCount(name)}`));
  const long = { _id: "a", text: "x".repeat(300_000) };
  const { signal } = new AbortController();
  try {
    await everywhere(async (client) => {
      sockets.length = 0;
      const together = (doc) => Promise.all(HUNDRED.slice(0, 20).map(() => client.map([COUNT], [doc], { signal })));
      await together({ _id: "a" });
      const before = listeners();
      for (let round = 0; round < 10; round++) await together(long);
      for (const call of TABLE.calls) if (call[0] !== "list") await make(client, call);
      assert.deepEqual(listeners(), before);
    });
  } finally {
    net.connect = connect;
    process.off("warning", warned);
  }
  assert.deepEqual(warnings, []);
});

test("a long design document is sent once and then named by its digest", async () => {
  const ddoc = { ...TABLE.ddoc, text: "é".repeat(1 << 19) };
  const options = { req: { query: { end: "!" } } };
  for (const address of [TCP, HTTP]) {
    await counting(address, async (address, sent) => {
      const client = new settee.Client(address);
      for (let round = 0; round < 10; round++) {
        assert.equal((await client.show("shop", ddoc, "name", null, options)).body, "nobody!");
        assert.deepEqual(await client.filterView("shop", ddoc, "by_n", [{ _id: "a", n: 7 }]), [true]);
      }
      assert.equal(sent() >> 19, 2);
      await client.show("till", ddoc, "name", null, options);
      assert.equal(sent() >> 19, 4);
      client.close();
    });
  }
});

test("a service that does not know a digest gets the design document, and an old service never gets a digest", async () => {
  const ddoc = { _id: "_design/d", text: "x".repeat(2000) };
  const forgets = { name: "unknown_ddoc", reason: "", fault: "client", retry: false };
  for (const [limits, expected] of [[{}, "tttt"], [{ ddoc_sha256: true }, "tddtd"]]) {
    let seen = "";
    const serve = (request, reply) => {
      seen += "sha256" in request.ddoc ? "d" : "t";
      reply({ id: request.id, ...(seen === "tdd" ? { error: forgets } : { ok: true }) });
    };
    await scripted(serve, async (address) => {
      const client = new settee.Client(address);
      for (let round = 0; round < 4; round++) assert.equal(await client.rewrite("shop", ddoc, {}), true);
      client.close();
    }, 64 << 20, limits);
    assert.equal(seen, expected);
  }
});

test("a call above the service's size limit fails before it is sent, and no other is affected", async () => {
  const huge = { _id: "a", text: "x".repeat(5 << 20) };
  for (const address of ADDRESSES) {
    const client = new settee.Client(address, { retryFor: 60 });
    const proc = address === HTTP ? null : await client.getProc({ lang: "javascript" });
    const key = address === HTTP ? "body_max" : "line_max";
    const told = (error) => {
      assert.ok(error instanceof settee.BadRequest, error);
      assert.match(error.message, /^the call has 5\d{6} bytes, more than the 4194304 bytes .*: send less/);
      assert.ok(error.message.includes(`[server] ${key}`), error.message);
      return true;
    };
    const other = client.map([COUNT], [{ _id: "b" }], { db: "shop" });
    await assert.rejects(client.map([COUNT], [huge]), told);
    assert.deepEqual(await other, [[[["b", 1]]]]);
    if (proc) {
      await assert.rejects(proc.prompt(["map_doc", huge]), told);
      assert.ok(await proc.reset());
      assert.ok(await proc.retProc());
    }
    const large = { _id: "a", text: "x".repeat(3 << 20) };
    assert.deepEqual(await client.map([COUNT], [large], { db: "shop" }), [[[["a", 1]]]]);
    client.close();
  }
});

test("an integer that a number cannot hold fails only its own call, and others are exact", async () => {
  const held = [2 ** 53, -(2 ** 53), 2 ** 60, 1e300, 1.0000000000000001, "9007199254740993", 'a "9007199254740993', null];
  await everywhere(async (client) => {
    for (const number of held) {
      assert.deepEqual(await client.reduce(["_first"], [[["k", "a"], number]], { finalize: true }), [number]);
    }
    const rows = [[["k", "a"], 2 ** 53], [["k", "b"], 1]];
    const other = client.reduce(["_count"], rows);
    await assert.rejects(client.reduce(["_sum"], rows), (error) => {
      assert.ok(error instanceof RangeError, error);
      assert.match(error.message, /^the reply has 9007199254740993, which a JavaScript number cannot hold/);
      return true;
    });
    assert.deepEqual(await other, [2]);
  });
});

test("lines keep their order while the size limit is requested, and an old service has the default limit", async () => {
  for (const [lineMax, expected] of [[3000, [2000, 1]], [undefined, [2000, 1, 5000]]]) {
    const sizes = [];
    const serve = ({ id, text }, reply) => {
      sizes.push(text.length);
      reply({ id, ok: true });
    };
    await scripted(serve, async (address) => {
      const client = new settee.Client(address);
      const call = (size) => client.call("x", { text: "x".repeat(size) });
      await Promise.all([2000, 1].map(call));
      if (lineMax) await assert.rejects(call(5000), settee.BadRequest);
      else await call(5000);
      client.close();
    }, lineMax);
    assert.deepEqual(sizes, expected);
  }
});

test("an unserializable argument fails at once with a TypeError that names the member", () =>
  everywhere(async (client) => {
    const circle = { _id: "a", inner: {} };
    circle.inner.again = circle;
    for (const [doc, member] of [[{ _id: "a", n: 1n }, "docs[1].n"], [circle, "docs[1].inner.again"]]) {
      await assert.rejects(client.map([COUNT], [{ _id: "b" }, doc]), (error) => {
        assert.ok(error instanceof TypeError, error);
        assert.ok(error.message.startsWith(`cannot send '${member}': `), error.message);
        return true;
      });
    }
    const stream = collect(client.map([COUNT], new Set([{ _id: "a", n: 1n }])));
    await assert.rejects(stream, /TypeError: cannot send 'n': /);
    const rows = client.list("shop", TABLE.ddoc, "keys", [{ key: 1n }], { req: { query: {} } });
    await assert.rejects(rows.then(collect), TypeError);
    await client.compile("function() {}");
  }));

test("an undefined option counts as left out", () =>
  scripted(({ id, lang }, reply) => reply({ id, ok: lang }), async (address) => {
    const client = new settee.Client(address);
    assert.equal(await client.map([], [], { lang: undefined }), "javascript");
    client.close();
  }));

test("a selection that matches nothing has its options in both calls", async () => {
  const seen = [];
  const serve = ({ id, call, pool }, reply) => {
    seen.push([call, pool]);
    reply({ id, ok: [[[]]] });
  };
  await scripted(serve, async (address) => {
    const client = new settee.Client(address);
    assert.deepEqual(await client.select({ n: 1 }, [{ _id: "a" }], { pool: "reports" }), []);
    client.close();
  });
  assert.deepEqual(seen, [["map_docs", "reports"], ["validate_docs", "reports"]]);
});

test("ten thousand calls may be made at the same time", () =>
  everywhere(async (client) => {
    const rows = [[["k", "a"], 1]];
    const all = await Promise.all(Array.from({ length: 10_000 }, () => client.reduce(["_count"], rows)));
    assert.ok(all.every(([count]) => count === 1));
  }, [UNIX, TCP]));

test("a hundred calls wait on one connection and are answered in any order", async () => {
  const requests = [];
  const serve = (request, reply) => {
    if (requests.push(request) < 100) return;
    for (const { id, docs } of requests.reverse()) reply({ id, ok: docs });
  };
  await scripted(serve, async (address, server) => {
    const client = new settee.Client(address);
    const values = await Promise.all(HUNDRED.map((id) => client.map([], [id])));
    assert.deepEqual(values, HUNDRED.map((id) => [id]));
    assert.equal(server.connections_made, 1);
    client.close();
  });
});

const MEMBERS = {
  request_id: "r-1",
  pool: "javascript",
  logs: [{ level: "info", message: "hello" }],
  logs_dropped: 2,
  errors: [{ function: 0, doc: "a", name: "TypeError", message: "m", line: 3 }],
  errors_dropped: 1,
  cost: { wait_us: 12 },
};

test("a report has the value, logs, errors and cost", () => {
  const serve = ({ id, report, request_id }, reply) => reply({ id, ok: [[[]]], ...MEMBERS, ...(report && { request_id }) });
  return scripted(serve, async (address) => {
    const client = new settee.Client(address);
    const report = await client.map([COUNT], [{ _id: "a" }], { report: true, requestId: "r-2" });
    assert.deepEqual({ ...report }, { ...MEMBERS, value: [[[]]], request_id: "r-2" });
    client.close();
  });
});

test("an error carries its call's report", () => {
  const serve = ({ id }, reply) =>
    reply({ id, error: { name: "compilation_error", reason: "no", shifted: true }, ...MEMBERS });
  return scripted(serve, async (address) => {
    const client = new settee.Client(address);
    await assert.rejects(client.compile("function(", { report: true }), (error) => {
      assert.deepEqual({ ...error.report }, { ...MEMBERS, value: undefined });
      assert.equal(error.shifted, true);
      return true;
    });
    client.close();
  });
});

test("the daemon returns reports", () =>
  everywhere(async (client) => {
    const map = "function(doc) { log('hello'); emit(1) }";
    const report = await client.map([map], [{ _id: "a" }], { report: true });
    assert.deepEqual([report.value, report.logs[0].message], [[[[[1, null]]]], "hello"]);
  }));

test("a server that speaks another protocol causes a protocol error", () =>
  scripted((_request, reply) => reply("HTTP/1.1 400 Bad Request"), async (address) => {
    const client = new settee.Client(address);
    await assert.rejects(client.map([], []), settee.ProtocolError);
    client.close();
  }));

test("an error without an id fails all pending calls", () => {
  const error = { name: "line_too_long", reason: "too long", fault: "client" };
  return scripted((_request, reply) => reply({ id: null, error }), async (address) => {
    const client = new settee.Client(address);
    await assert.rejects(client.map([], []), { name: "line_too_long" });
    client.close();
  });
});

test("a list times out when the service is silent", () =>
  silent(async (address) => {
    const client = new settee.Client(address, { callMs: 50 });
    await assert.rejects(client.list("shop", TABLE.ddoc, "keys", []), settee.Unavailable);
    client.close();
  }));

test("a call times out when the service is silent", () =>
  scripted(() => {}, async (address) => {
    const client = new settee.Client(address, { callMs: 50 });
    await assert.rejects(client.map([], []), { name: "timeout", phase: "reply", retry: true });
    client.close();
  }));


test("an invalid address is refused when the client is made", () => {
  const wrong = {
    "localhost:5994": "no known scheme",
    localhost: "no known scheme",
    "ftp://localhost/": "no known scheme",
    "tcp:localhost": "no port",
    "tcp:localhost:port": "cannot be read",
    "http://:5995/": "cannot be read",
  };
  for (const [address, reason] of Object.entries(wrong)) {
    assert.throws(() => new settee.Client(address), (error) => {
      assert.deepEqual([error.constructor, error.fault], [settee.BadRequest, "client"]);
      assert.ok(error.message.includes(`the address '${address}'`) && error.message.includes(reason), error.message);
      return true;
    });
  }
});

test("the error of a refused address has no password", () => {
  for (const address of ["tcp:ann:s3cret@host", "tcp:ann:s3cret@host:port", "tcp:ann:s3cret/@host:1", "tcp:ann:s3cret\n@host", "ftp://ann:s3cret@host/"]) {
    assert.throws(() => new settee.Client(address), (error) => error.message.includes("host") && !error.message.includes("s3cret"));
  }
});

test("the address of a Unix socket may be a relative path", async () => {
  const path = UNIX.replace(/^unix:/, "");
  const before = process.cwd();
  process.chdir(dirname(path));
  try {
    await everywhere((client) => client.compile("function() {}"), [basename(path)]);
  } finally {
    process.chdir(before);
  }
});

test("the error names the address where nothing listens", async () => {
  const refused = async (address, reason, call = (client) => client.map([], [])) => {
    const client = new settee.Client(address, { retryFor: 0 });
    await assert.rejects(call(client), (error) => {
      assert.deepEqual([error.constructor, error.sent], [settee.Unavailable, false]);
      assert.ok(error.message.includes(reason), error.message);
      return true;
    });
    client.close();
  };
  await refused(`${UNIX}.missing`, `there is no socket at ${UNIX}.missing`);
  await refused(`${UNIX}.missing`, `${UNIX}.missing.http.sock`.replace("unix:", ""), (client) => client.kill("javascript/1"));
  let port;
  await scripted(() => {}, (_address, server) => ({ port } = server.address()));
  for (const address of [`tcp:127.0.0.1:${port}`, `http://127.0.0.1:${port}/`]) {
    await refused(address, `127.0.0.1:${port}`);
  }
});

test("calls of a closed client fail", async () => {
  for (const address of ADDRESSES) {
    const client = new settee.Client(address);
    const isSocket = address !== HTTP;
    await client.map([], []);
    const proc = isSocket && (await client.getProc({ lang: "javascript" }));
    client.close();
    client.close();
    const calls = [() => client.map([], []), () => client.list("shop", TABLE.ddoc, "keys", []), () => client.ps(),
      () => client.call("finalize"), () => client.getProc({ lang: "javascript" })];
    if (isSocket) calls.push(() => proc.prompt(["reset"]));
    for (const call of calls) {
      await assert.rejects(call, (error) => {
        assert.deepEqual([error.constructor, error.fault, error.retry], [settee.ClientClosed, "client", false]);
        return true;
      });
    }
  }
});

test("pending calls fail when the client is closed", async () => {
  let asked;
  const isAsked = new Promise((resolve) => (asked = resolve));
  await scripted(asked, async (address) => {
    const client = new settee.Client(address);
    const waiting = client.map([], []);
    await isAsked;
    client.close();
    await assert.rejects(waiting, settee.ClientClosed);
  });
  await silent(async (address) => {
    const client = new settee.Client(address);
    const waiting = client.map([], []);
    client.close();
    await assert.rejects(waiting, settee.ClientClosed);
  });
});

const BUSY = { name: "pool_busy", reason: "too many wait", fault: "settee", retry: true };

// Runs a test against a service that fails the first `times` calls; returns the number of calls that arrived.
async function refusing(times, error, options, use) {
  const tries = [];
  const serve = ({ id, call }, reply) => reply({ id, ...(tries.push(call) > times ? { ok: [] } : { error }) });
  await scripted(serve, async (address) => {
    const client = new settee.Client(address, options);
    await use(client);
    client.close();
  });
  return tries.length;
}

test("a transient error is retried for as long as the client allows", async () => {
  for (const error of [BUSY, { ...BUSY, retry_after_ms: 1 }, { name: "shutting_down", reason: "it ends" }, { name: "draining", reason: "it rests" }]) {
    const use = async (client) => assert.deepEqual(await client.map([], []), []);
    assert.equal(await refusing(2, error, { retryFor: 20 }, use), 3);
  }
});

test("without time for retries an error is reported at once", async () => {
  for (const options of [{}, { retryFor: 0 }]) {
    assert.equal(await refusing(2, BUSY, options, (client) => assert.rejects(client.map([], []), settee.Busy)), 1);
  }
});

test("a call fails with the last error when the time is up", async () => {
  const use = (client) => assert.rejects(client.map([], []), settee.Busy);
  assert.ok((await refusing(Infinity, BUSY, { retryFor: 0.3 }, use)) > 1);
  assert.equal(await refusing(Infinity, { ...BUSY, retry_after_ms: 20_000 }, { retryFor: 0.3 }, use), 1);
});

test("neither mistakes nor calls that must not be repeated are retried", async () => {
  const mistake = { name: "bad_request", reason: "no" };
  for (const [error, call] of [[mistake, (client) => client.map([], [])], [BUSY, (client) => client.call("index_docs")]]) {
    assert.equal(await refusing(2, error, { retryFor: 20 }, (client) => assert.rejects(call(client), settee.ServiceError)), 1);
  }
});

test("a query to a busy service is retried and a kill is not", async () => {
  const asked = await busy(2, async (client) => assert.deepEqual(await client.ps(), { ok: [] }));
  assert.equal(asked.length, 3);
  const ordered = await busy(2, (client) => assert.rejects(client.kill("javascript/1"), settee.Busy));
  assert.deepEqual(ordered, ["/_procs/javascript/1?now=false"]);
});

const ENDLESS = "function(doc) { for (;;); }";

// Waits until `count` processes are in use.
async function used(client, count) {
  for (const end = Date.now() + 20_000; ; ) {
    const { procs } = await client.ps("javascript");
    if (procs.filter(({ state }) => ["lent", "running"].includes(state)).length === count) return;
    assert.ok(Date.now() < end, `not ${count} processes in use in time`);
  }
}

test("a call that is aborted frees its process", async () => {
  const watching = new settee.Client(UNIX);
  await everywhere(async (client) => {
    const control = new AbortController();
    const calling = client.map([ENDLESS], [{ _id: "a" }], { db: "shop", signal: control.signal });
    await Promise.race([calling, used(watching, 1)]);
    control.abort(new RangeError("enough"));
    await assert.rejects(calling, { message: "enough" });
    await used(watching, 0);
    assert.deepEqual(await client.map([COUNT], [{ _id: "a" }], { db: "shop" }), [[[["a", 1]]]]);
    const { signal } = control;
    await assert.rejects(client.map([COUNT], [], { signal }), RangeError);
    await assert.rejects(client.list("shop", TABLE.ddoc, "keys", [], { signal }), RangeError);
  });
  watching.close();
});

test("a call that takes too long frees its process and no other", async () => {
  const watching = new settee.Client(UNIX);
  const client = new settee.Client(UNIX, { callMs: 1000 });
  await client.lease({ lang: "javascript", db: "shop" }, async (proc) => {
    await assert.rejects(client.map([ENDLESS], [{ _id: "a" }], { db: "shop" }), settee.CallTimeout);
    await used(watching, 1);
    assert.equal(await proc.prompt(["reset"]), true);
  });
  await used(watching, 0);
  client.close();
  watching.close();
});

test("aborting a prompt stops its process", async () => {
  const watching = new settee.Client(UNIX);
  const client = new settee.Client(UNIX);
  const control = new AbortController();
  await assert.rejects(client.lease({ lang: "javascript", db: "shop" }, async (proc) => {
    await proc.prompt(["add_fun", ENDLESS]);
    const prompt = proc.prompt(["map_doc", { _id: "a" }], { signal: control.signal });
    control.abort(new RangeError("enough"));
    await prompt;
  }), RangeError);
  await used(watching, 0);
  client.close();
  watching.close();
});

// A source of documents that counts those whose rows have not been returned yet.
class Flow {
  inFlight = 0;
  most = 0;
  rowsGiven = 0;

  constructor(count) {
    this.count = count;
  }

  *docs() {
    for (let number = 0; number < this.count; number++) {
      this.most = Math.max(this.most, ++this.inFlight);
      yield { _id: String(number) };
    }
  }

  async *asyncDocs() {
    yield* this.docs();
  }

  given(rows) {
    assert.deepEqual(rows, [[[String(this.rowsGiven++), 1]]]);
    this.inFlight--;
  }
}

test("a hundred thousand documents are mapped in order with few in flight", () =>
  everywhere(async (client) => {
    const flow = new Flow(100_000);
    for await (const rows of client.map([COUNT], flow.docs(), { db: "shop" })) flow.given(rows);
    assert.equal(flow.rowsGiven, flow.count);
    assert.ok(flow.most <= STREAM_DOCS_MAX, `${flow.most}`);
  }, [UNIX]));

test("any iterable is mapped", () =>
  everywhere(async (client) => {
    const docs = new Map(Array.from({ length: 250 }, (_none, number) => [number, { _id: String(number) }]));
    const rows = await collect(client.map([COUNT], docs.values(), { db: "shop" }));
    assert.deepEqual(rows, Array.from(docs.values(), ({ _id }) => [[[_id, 1]]]));
    assert.deepEqual(await collect(client.map([COUNT], new Set())), []);
    const flow = new Flow(1000);
    for await (const given of client.map([COUNT], flow.asyncDocs(), { db: "shop" })) flow.given(given);
    assert.equal(flow.rowsGiven, flow.count);
  }));

test("a document's rows are yielded before the next document is taken", () =>
  everywhere(async (client) => {
    let read;
    async function* docs() {
      for (const _id of ["0", "1", "2"]) {
        const isRead = new Promise((resolve) => (read = resolve));
        yield { _id };
        await isRead;
      }
    }
    const seen = [];
    for await (const [[[key]]] of client.map([COUNT], docs(), { db: "shop" })) {
      seen.push(key);
      read();
    }
    assert.deepEqual(seen, ["0", "1", "2"]);
  }));

test("large documents are sent in smaller batches", async () => {
  const asked = [];
  const serve = ({ id, docs }, reply) => {
    asked.push(docs.length);
    reply({ id, ok: docs.map(() => [[]]) });
  };
  await scripted(serve, async (address) => {
    const client = new settee.Client(address);
    const docs = new Set(HUNDRED.slice(0, 4).map((_id) => ({ _id, text: "x".repeat(BATCH_BYTES_MAX / 2) })));
    assert.equal((await collect(client.map([COUNT], docs))).length, 4);
    client.close();
  });
  assert.deepEqual(asked, [2, 2]);
});

test("rows mapped before a failure are yielded first", () =>
  everywhere(async (client) => {
    async function* docs() {
      yield { _id: "a" };
      throw new RangeError("no more documents");
    }
    const seen = [];
    await assert.rejects(async () => {
      for await (const rows of client.map([COUNT], docs(), { db: "shop" })) seen.push(rows);
    }, RangeError);
    assert.deepEqual(seen, [[[["a", 1]]]]);
    await assert.rejects(collect(client.map(["function("], new Set([{ _id: "a" }]))), settee.CompilationError);
    assert.throws(() => client.map([COUNT], new Set(), { report: true }), settee.BadRequest);
  }, [UNIX]));

test("an abandoned or aborted stream takes no further documents", () =>
  everywhere(async (client) => {
    const flow = new Flow(Infinity);
    for await (const rows of client.map([COUNT], flow.asyncDocs(), { db: "shop" })) {
      flow.given(rows);
      break;
    }
    assert.ok(flow.most <= STREAM_DOCS_MAX);
    const control = new AbortController();
    const other = new Flow(Infinity);
    await assert.rejects(async () => {
      for await (const rows of client.map([COUNT], other.docs(), { db: "shop", signal: control.signal })) {
        other.given(rows);
        control.abort(new RangeError("enough"));
      }
    }, { message: "enough" });
    assert.ok(other.most <= STREAM_DOCS_MAX);
  }, [UNIX]));
