"use strict";
// Maps documents as they arrive: in calls of bounded size, a bounded number of calls at a time, with rows in order.

const { encode } = require("./wire.js");

// Maximum documents of one call.
const BATCH_DOCS_MAX = 100;

// The size at which no further document is taken into a call, in bytes.
const BATCH_BYTES_MAX = 1 << 20;

// How long a call collects documents, in milliseconds since its first one.
const BATCH_MS_MAX = 50;

// Maximum concurrent calls. So at most 300 documents are taken whose rows are not yet yielded: those of these calls,
// and of the next one.
const BATCHES_MAX = 2;

// Yields the rows of each document. `call` begins a call for documents, which ends when the given signal is aborted;
// aborting the signal `caller` ends all calls.
async function* stream(call, docs, caller) {
  caller?.throwIfAborted();
  const control = new AbortController();
  const giveUp = () => control.abort(caller.reason);
  caller?.addEventListener("abort", giveUp);
  const calls = new Calls((batch) => call(batch, control.signal), control.signal);
  const reading = calls.read(docs);
  // A failure to read the documents fails the stream, after the rows before it.
  reading.catch(() => {});
  try {
    for (let rows; (rows = await calls.next()); calls.given()) yield* rows;
    await reading;
  } finally {
    caller?.removeEventListener("abort", giveUp);
    control.abort();
  }
}

// An event that can be awaited repeatedly.
class Event {
  #happened = Promise.resolve();
  #resolve = () => {};

  set() {
    this.#resolve();
  }

  // Forgets what has happened.
  clear() {
    this.#happened = new Promise((resolve) => (this.#resolve = resolve));
  }

  wait() {
    return this.#happened;
  }
}

// The calls of a stream, in the order of their documents.
class Calls {
  #call;
  #signal;
  #batch = [];
  #bytes = 0;
  #calls = [];
  #timer = null;
  #isDue = false;
  #isOver = false;
  // Set when a call begins, when there are no more documents, and when the stream is aborted.
  #begun = new Event();
  // Set when the next batch has room.
  #room = new Event();

  constructor(call, signal) {
    this.#call = call;
    this.#signal = signal;
    signal.addEventListener("abort", () => {
      clearTimeout(this.#timer);
      this.#begun.set();
      this.#room.set();
    });
  }

  async read(docs) {
    try {
      for await (const doc of docs) {
        if (this.#signal.aborted) return;
        this.#add(doc);
        while (this.#isFull() && !this.#signal.aborted) {
          this.#room.clear();
          await this.#room.wait();
        }
      }
    } finally {
      this.#isOver = true;
      this.#send(true);
      this.#begun.set();
    }
  }

  #add(doc) {
    this.#bytes += Buffer.byteLength(encode(doc));
    this.#batch.push(doc);
    if (this.#batch.length === 1) this.#timer = setTimeout(() => this.#send(true), BATCH_MS_MAX);
    this.#send(false);
  }

  #isFull() {
    return this.#batch.length >= BATCH_DOCS_MAX || this.#bytes >= BATCH_BYTES_MAX;
  }

  // Begins the next call if it is full or due and fewer than `BATCHES_MAX` are in flight.
  #send(isDue) {
    this.#isDue ||= isDue;
    if (this.#batch.length === 0 || !(this.#isDue || this.#isFull()) || this.#calls.length >= BATCHES_MAX) return;
    if (this.#signal.aborted) return;
    clearTimeout(this.#timer);
    const call = this.#call(this.#batch);
    // A failure of the call is reported when its rows are due.
    call.catch(() => {});
    this.#calls.push(call);
    this.#batch = [];
    this.#bytes = 0;
    this.#isDue = this.#isOver;
    this.#begun.set();
    this.#room.set();
  }

  // Returns the rows of the next call, nothing after the last.
  async next() {
    while (this.#calls.length === 0) {
      this.#signal.throwIfAborted();
      if (this.#isOver) return undefined;
      this.#begun.clear();
      await this.#begun.wait();
    }
    return this.#calls[0];
  }

  // Called when the rows of a call were yielded.
  given() {
    this.#calls.shift();
    this.#send(false);
  }
}

module.exports = { stream, BATCH_BYTES_MAX };
