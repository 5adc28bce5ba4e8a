// The daemons that share the store; empty if this one does not share it.

import { h, link, mood, section, table } from "./dom.js";
import { listPath } from "./jobs.js";
import { plural, span, when } from "./words.js";

// A list older than this many seconds shows its age: the database failed to answer several times.
const OLD_S = 10;

function stateOf({ lease_left_s: left, leaving }) {
  if (left === 0) return mood("lease expired", "bad");
  return leaving ? mood("leaving", "warn") : mood("alive", "good");
}

export function daemons({ fleet }) {
  if (!fleet) return null;
  const { daemons: all, age_s: age } = fleet;
  const columns = [["Daemon", "first"], ["State", "first"], ["Lease", "number"], ["Last renewal"], ["Documents", "number"], ["Version"]];
  const rows = all.map((daemon) => [daemon.epoch,
    link(listPath({ daemon: daemon.address }), daemon.address + (daemon.self ? " (this one)" : "")),
    stateOf(daemon), span(daemon.lease_left_s * 1000), when(daemon.last_renewal), daemon.documents, daemon.version]);
  return section("Daemons", plural(all.length, "daemon"),
    age >= OLD_S ? h("p", { class: "bad" }, `The database does not answer: the data of other daemons is ${span(age * 1000)} old.`) : null,
    table("daemons", columns, rows, "No daemon has a lease."));
}
