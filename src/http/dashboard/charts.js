// The last hour as small charts: a line each, with an equivalent text.

import { query, remembering } from "./api.js";
import { h } from "./dom.js";
import { number, span } from "./words.js";

// Minimum width of a chart, in samples.
const SAMPLES_MIN = 20;
const HEIGHT = 40;

// The service takes a sample every 30 s.
const history = remembering(10_000);
export const load = (pool) => history(query("/_dashboard/history", { pool }));

const compact = (value) => (value >= 10 || value === 0 ? number(Math.round(value)) : value.toFixed(value >= 1 ? 1 : 2));
const perSecond = (value) => `${compact(value)}/s`;

function points(values, most, first) {
  const step = (value, at) => `${at === 0 ? "M" : "L"}${first + at} ${(HEIGHT - 1 - (value / most) * (HEIGHT - 4)).toFixed(1)}`;
  return values.map(step).join("");
}

// One number over time; the picture's alternative text describes the line.
function chart(name, { at, period }, kind, values, format, note) {
  const most = Math.max(...values, 0);
  const width = Math.max(values.length, SAMPLES_MIN) - 1, first = width + 1 - values.length;
  const now = values.at(-1) ?? 0;
  const peak = values.indexOf(Math.max(...values));
  const text = values.length === 0
    ? `${name}: no numbers yet`
    : `${name} in the last ${span(values.length * period * 1000)}: now ${format(now)}, peak ${format(values[peak])} at ${new Date(at[peak] * 1000).toLocaleTimeString("en", { hour: "2-digit", minute: "2-digit", hour12: false })}${note ? `, ${note}` : ""}`;
  return h("figure", { "data-key": name },
    h("figcaption", null, h("span", null, name), " ", h("b", null, values.length === 0 ? "–" : format(now)), " ",
      h("small", null, note ?? (values.length === 0 ? "first numbers in 30 s" : `peak ${format(values[peak])}`))),
    h("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": text },
      h("line", { x1: 0, y1: HEIGHT - 0.5, x2: width, y2: HEIGHT - 0.5 }),
      values.length === 0 ? null : [
        h("path", { class: "area", d: `${points(values, most || 1, first)}L${width} ${HEIGHT}L${first} ${HEIGHT}Z` }),
        h("path", { class: kind, d: points(values, most || 1, first) }),
      ]),
    h("p", { class: "axis" }, h("span", null, `${span((width + 1) * period * 1000)} ago`), h("span", null, "now")));
}

// The charts of these names.
export function draw(series, ...names) {
  const { period } = series;
  const rate = (values) => values.map((value) => value / period);
  const waits = series.lent.map((lent, index) => (lent === 0 ? 0 : series.waited_ms[index] / lent));
  const errors = series.errors.reduce((sum, count) => sum + count, 0);
  const charts = {
    calls: () => chart("Calls", series, "line", rate(series.calls), perSecond),
    errors: () => chart("Errors", series, "line bad", rate(series.errors), perSecond, errors > 0 ? `${number(errors)} in all` : undefined),
    lent: () => chart("Processes lent", series, "line", rate(series.lent), perSecond),
    waiting: () => chart("Requests waiting", series, "line", series.waiting, number),
    waits: () => chart("Wait for a process", series, "line", waits, span),
    written: () => chart("Documents written", series, "line", rate(series.docs_written), perSecond),
    pending: () => chart("Changes pending", series, "line", series.pending, number),
  };
  return h("div", { class: "charts" }, names.map((name) => charts[name]()));
}
