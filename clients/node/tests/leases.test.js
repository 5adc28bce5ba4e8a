"use strict";
// Processes that a client holds, and that are returned however the loan ends.

const assert = require("node:assert/strict");
const test = require("node:test");
const settee = require("settee");
const { HTTP, MANAGED, TABLE, TCP, UNIX, camel, order, scripted, until } = require("./support.js");

const ADD = ["add_fun", "function(doc) { emit(doc.n, 1) }"];

function withClient(use, address = UNIX, options = {}) {
  return async () => {
    const client = new settee.Client(address, options);
    try {
      await use(client);
    } finally {
      client.close();
    }
  };
}

for (const address of [UNIX, TCP]) {
  test(`a lease prompts one process and returns it (${address.slice(0, 4)})`, withClient(async (client) => {
    const held = await client.lease({ lang: "javascript", db: "shop" }, async (proc) => {
      assert.deepEqual([proc.pool, proc.lang, proc.down], ["javascript", "javascript", null]);
      assert.equal(await proc.prompt(ADD), true);
      assert.equal(await proc.setTimeout(5000), true);
      const rows = await proc.prompt(["map_doc", { _id: "a", n: 7 }], { timeoutMs: 5000 });
      assert.deepEqual(rows, [[[7, 1]]]);
      return proc;
    });
    await assert.rejects(held.prompt(["reset"]), { name: "not_holder" });
  }, address));
}

test("a lease ends when its block throws", withClient(async (client) => {
  let held;
  const block = async (proc) => {
    held = proc;
    throw new RangeError();
  };
  await assert.rejects(client.lease({ lang: "javascript" }, block), RangeError);
  assert.equal(await held.retProc(), false, "already returned");
}));

test("a lease without a block is disposed of", withClient(async (client) => {
  const proc = await client.lease({ lang: "javascript" });
  await proc[Symbol.asyncDispose]();
  assert.equal(await proc.retProc(), false);
}));

test("a process returned as failed is not lent again", withClient(async (client) => {
  const proc = await client.getProc({ lang: "javascript", db: "shop" });
  assert.equal(await proc.retProc("fail"), true);
  const other = await client.lease({ lang: "javascript", db: "shop" }, async ({ osPid }) => osPid);
  assert.notEqual(other, proc.osPid);
}));

test("a busy process is not lent again after its caller gave up", async () => {
  const impatient = new settee.Client(UNIX, { callMs: 300 });
  let stuck;
  await assert.rejects(impatient.lease({ lang: "javascript", db: "shop" }, async (proc) => {
    stuck = proc.osPid;
    await proc.prompt(["add_fun", "function(doc) { for (;;); }"]);
    await proc.prompt(["map_doc", { _id: "a" }]);
  }), { name: "timeout", phase: "reply", reason: /^'prompt'/ });
  impatient.close();
  await withClient(async (client) => {
    const other = await client.lease({ lang: "javascript", db: "shop" }, async ({ osPid }) => osPid);
    assert.notEqual(other, stuck);
  })();
});

test("the client is notified when its process is revoked", withClient(async (client) => {
  await order("PUT", "/_pools/node-tests", '{"language":"javascript"}');
  const proc = await client.getProc({ pool: "node-tests" });
  await order("DELETE", "/_pools/node-tests?mode=immediate");
  await until(() => proc.down);
  assert.equal(proc.down.name, "pool_removed");
  assert.equal(await proc.retProc(), false);
}));

for (const [address, options] of MANAGED) {
  test(`a process is shown and killed (${address.slice(0, 4)})`, withClient(async (client) => {
    await withClient((holder) => holder.lease({ lang: "javascript", db: "shop" }, async (proc) => {
      const { procs } = await client.ps("javascript");
      const row = procs.find(({ os_pid: osPid }) => osPid === proc.osPid);
      assert.deepEqual([row.pool, row.state], ["javascript", "lent"]);
      assert.ok((await client.ps()).procs.some(({ name }) => name === row.name));
      const killed = await client.kill(row.name, { now: true });
      assert.deepEqual([killed.how, killed.proc.name], ["killed", row.name]);
      await until(() => proc.down);
      assert.equal(proc.down.name, "killed");
      await assert.rejects(client.kill("javascript/0"), settee.NotFound);
      await assert.rejects(client.ps("nope"), settee.NotFound);
      for (const name of ["javascript", "17", "../javascript/17", "javascript/x"]) {
        await assert.rejects(client.kill(name), settee.BadRequest);
      }
    }))();
  }, address, options));

  test(`management calls are named as in the service (${address.slice(0, 4)})`, withClient(async (client) => {
    const names = ({ prototype }) => Object.getOwnPropertyNames(prototype).filter((name) => name !== "constructor").sort();
    assert.deepEqual(names(settee.Client), TABLE.methods.map(camel).sort());
    assert.deepEqual(names(settee.Proc), TABLE.proc_methods.map(camel).sort());
    for (const [method, query, member] of TABLE.managed) {
      const made = await client[method](...(Object.keys(query).length > 0 ? [query] : []));
      assert.ok(Array.isArray(made[member]), method);
    }
    assert.equal((await client.pools()).pools[0].name, "javascript");
    await assert.rejects(client.jobs({ states: "nope" }), { name: "query_parse_error" });
  }, address, options));

  test(`the health of the service is reported (${address.slice(0, 4)})`, withClient(async (client) => {
    const health = await client.health();
    assert.ok(["ok", "warning", "critical"].includes(health.status));
    assert.ok(Array.isArray(health.problems));
    const fleet = await client.health({ fleet: true });
    assert.deepEqual(fleet.daemons.map(({ daemon }) => daemon), [health.daemon]);
  }, address, options));
}

test("a client that may not manage the service gets an error", async () => {
  for (const [address, password, kind, reason] of [
    [TCP, "secret", settee.BadRequest, "use an http:// or https:// address"],
    [HTTP, "secret", settee.Forbidden, "ann"],
    [UNIX, "secret", settee.Forbidden, "ann"],
    [UNIX, "wrong", settee.Unauthorized, ""],
  ]) {
    await withClient(async (client) => {
      for (const call of [() => client.ps(), () => client.health(), () => client.kill("javascript/0")]) {
        await assert.rejects(call, (error) => {
          assert.deepEqual([error.constructor, error.fault, error.retry], [kind, "client", false], address);
          assert.ok(error.reason.includes(reason), error.reason);
          return true;
        });
      }
    }, address, { user: "ann", password })();
  }
});

test("a process lent after its caller gave up is returned", async () => {
  let returned;
  const isReturned = new Promise((resolve) => (returned = resolve));
  let requested;
  const isRequested = new Promise((resolve) => (requested = resolve));
  const serve = ({ id, call, proc }, reply) => {
    if (call === "get_proc") requested(() => reply({ id, ok: { proc: "1.2.3", config: {} } }));
    if (call === "ret_proc") returned(proc);
  };
  await scripted(serve, async (address) => {
    // Long enough to connect on a busy machine: without a connection the client would request nothing.
    const client = new settee.Client(address, { callMs: 2000 });
    await assert.rejects(client.getProc({ lang: "javascript" }), { name: "timeout" });
    const replyLate = await isRequested;
    replyLate();
    assert.equal(await isReturned, "1.2.3");
    client.close();
  });
});
