// A program with mistakes that the types have to find.

import { Client } from "settee";

const client = new Client("/run/settee/settee.sock");
await client.map([], [], { tiemoutMs: 5 }); // wrong
await client.map("function(doc) {}", []); // wrong
const text: string = await client.compile("function(doc) {}"); // wrong
await client.filter("shop", { language: "javascript" }, "f", []); // wrong
const values: boolean[] = await client.filterView("shop", { _id: "_design/d" }, "v", [], { report: true }); // wrong
