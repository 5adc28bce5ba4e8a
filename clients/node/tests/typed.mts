// A program that uses the types: a test compiles it, and runs it against a service.

import assert from "node:assert/strict";
import { Busy, CallTimeout, Client, CompilationError, SetteeError, Unavailable, type Proc, type Report } from "settee";

const client = new Client(process.env.SETTEE_UNIX!);
const rows = await client.map(["function(doc) { emit(doc.n, 1) }"], [{ _id: "a", n: 7 }], { db: "shop", timeoutMs: 5000 });
const [key, value]: [unknown, unknown] = rows[0][0][0];
assert.deepEqual([key, value], [7, 1]);
async function* docs() {
  for (const n of [7, 8]) yield { _id: String(n), n };
}
const keys: unknown[] = [];
for await (const [[[key]]] of client.map(["function(doc) { emit(doc.n, 1) }"], docs(), { db: "shop" })) keys.push(key);
assert.deepEqual(keys, [7, 8]);
const found: { _id: string; n: number }[] = await client.select({ n: 7 }, [{ _id: "a", n: 7 }]);
assert.equal(found[0].n, 7);
await assert.rejects(client.compile("function("), (error) => error instanceof CompilationError && error.fault === "client");
const report = (): Promise<Report<boolean[]>> =>
  client.filterView("shop", { _id: "_design/d" }, "v", [], { report: true });
assert.equal(typeof report, "function");

function describe(error: SetteeError): string {
  if (error instanceof Busy) {
    const names: ("pool_busy" | "tenant_busy" | "throttled" | "too_many_held" | "too_many_requests")[] = [error.name];
    return `${names[0]}, in ${error.retry_after_ms ?? 0} ms`;
  }
  if (error instanceof CallTimeout) return `${error.phase.toUpperCase()} took too long`;
  if (error instanceof Unavailable) return error.sent ? "lost" : "away";
  return `${error.name}: ${error.fault}`;
}
await client.compile("function(", { report: true }).catch((error: unknown) => {
  if (!(error instanceof SetteeError)) throw error;
  assert.equal(describe(error), "compilation_error: client");
  assert.equal(error.report?.errors?.[0].line, 1);
});

const [first]: string[] = (await client.ps()).procs.map(({ name }) => name);
const { how }: { how: string } = await client.kill(first, { now: true });
assert.ok(["killed", "told", "ending"].includes(how));
assert.ok(["ok", "warning", "critical"].includes((await client.health()).status));
assert.equal((await client.health({ fleet: true })).daemons.length, 1);
const pools: string[] = (await client.pools()).pools.map(({ name }) => name);
assert.ok(pools.includes("javascript"));
assert.equal((await client.jobs({ states: "failed" })).total_rows, 0);
const costs: number[] = (await client.tenants({ sort: "cpu" })).tenants.map((tenant) => tenant.cpu_us);
assert.ok(costs.length > 0);

let held: Proc;
{
  await using proc = await client.lease({ lang: "javascript" });
  held = proc;
  assert.equal(await proc.prompt(["reset"]), true);
}
assert.equal(await held.retProc(), false);
client.close();
