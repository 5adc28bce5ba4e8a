// The page's requests to the service.

import { plain } from "./dom.js";

const ANSWER_WAIT_MS = 10_000;

export class Refused extends Error {
  constructor(status, reason) {
    super(plain(reason));
    this.status = status;
  }
}

// Sends a request and returns the answer; throws `Refused`, with the service's reason, if it is refused.
export async function ask(path, method = "GET", body = undefined) {
  const response = await fetch(path, {
    method,
    cache: "no-store",
    // An order has no timeout: the effect of an abandoned one would be unknown.
    signal: method === "GET" ? AbortSignal.timeout(ANSWER_WAIT_MS) : undefined,
    headers: body === undefined ? {} : { "Content-Type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const answer = await response.json();
  if (!response.ok) throw new Refused(response.status, answer.reason ?? answer.error);
  return answer;
}

// Returns a function that asks `question`, and caches its last answer for this long.
export function remembering(milliseconds, question = ask) {
  let path = null, at = 0, answer = null;
  return async (wanted) => {
    if (wanted !== path || Date.now() - at >= milliseconds) {
      answer = await question(wanted);
      [path, at] = [wanted, Date.now()];
    }
    return answer;
  };
}

// Returns the path with a query; empty values are omitted.
export function query(path, values) {
  const chosen = Object.entries(values).filter(([, value]) => value != null && value !== "" && value !== 0);
  const text = new URLSearchParams(chosen).toString();
  return text === "" ? path : `${path}?${text}`;
}
