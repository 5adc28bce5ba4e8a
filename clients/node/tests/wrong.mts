// A program with mistakes that the types must reveal.

import { Busy, Client, CompilationError, SetteeError } from "settee";

const client = new Client("/run/settee/settee.sock");
await client.map([], [], { tiemoutMs: 5 }); // wrong
await client.map("function(doc) {}", []); // wrong
const text: string = await client.compile("function(doc) {}"); // wrong
await client.filter("shop", { language: "javascript" }, "f", []); // wrong
const values: boolean[] = await client.filterView("shop", { _id: "_design/d" }, "v", [], { report: true }); // wrong
function describe(error: SetteeError): number {
  if (error instanceof Busy && error.name === "busy") return 1; // wrong
  if (error instanceof CompilationError && error.name === "timeout") return 2; // wrong
  if (error.fault === "nobody") return 3; // wrong
  return error.code; // wrong
}
