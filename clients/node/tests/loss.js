"use strict";
// A client of a service that is killed and restarted, by the parent, when this program requests it on standard output.

const assert = require("node:assert/strict");
const readline = require("node:readline/promises");
const settee = require("settee");

const COUNT = "function(doc) { emit(doc._id, 1) }";
const ROWS = [[[["a", 1]]]];
const input = readline.createInterface(process.stdin, process.stdout);
const request = async (order) => assert.equal(await input.question(`${order}\n`), order);

async function main(address) {
  const client = new settee.Client(address);
  const map = (by) => by.map([COUNT], [{ _id: "a" }]);
  assert.deepEqual(await map(client), ROWS);
  const proc = address.startsWith("http") ? null : await client.getProc({ lang: "javascript" });
  await request("kill");
  const other = new settee.Client(address, { retryFor: 0 });
  await assert.rejects(map(other), { name: "unavailable", fault: "host", retry: true });
  // A lease is lost with its connection.
  if (proc) await assert.rejects(proc.prompt(["reset"]), settee.Unavailable);
  if (proc) assert.equal(await proc.retProc(), false);
  const waiting = map(client);
  await request("start");
  assert.deepEqual(await waiting, ROWS);
  client.close();
  input.close();
}

main(process.argv[2]);
