"use strict";
// Continuous calls while the service restarts: none of them fails.

const assert = require("node:assert/strict");
const readline = require("node:readline/promises");
const settee = require("settee");
const { ADDRESSES } = require("./support.js");

const COUNT = "function(doc) { emit(doc._id, 1) }";

// Long enough to be sent once and then named by its digest, which the restarted service does not know.
const DDOC = { _id: "_design/d", shows: { s: "function(doc, req) { return 'shown' }" }, text: "x".repeat(1 << 20) };

const input = readline.createInterface(process.stdin, process.stdout);
let isOver = false;

// Calls until `isOver`, and once more.
async function callContinuously(client, called) {
  for (let isLast = false; !isLast; ) {
    isLast = isOver;
    assert.deepEqual(await client.map([COUNT], [{ _id: "a" }], { db: "shop" }), [[[["a", 1]]]]);
    assert.equal((await client.show("shop", DDOC, "s")).body, "shown");
    assert.deepEqual(await client.reduce(["_count"], [[["a", "a"], 1]]), [1]);
    called();
  }
}

async function main() {
  const clients = ADDRESSES.flatMap((address) => [address, address]).map((address) => new settee.Client(address, { retryFor: 60 }));
  const first = [];
  const callers = clients.map((client) => {
    let called;
    first.push(new Promise((resolve) => (called = resolve)));
    return callContinuously(client, called);
  });
  const all = Promise.all(callers);
  await Promise.race([all, Promise.all(first)]);
  const answer = await Promise.race([all, input.question("restart\n")]);
  assert.equal(answer, "restart");
  isOver = true;
  await all;
  for (const client of clients) client.close();
  input.close();
}

main();
