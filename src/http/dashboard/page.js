// The dashboard: polls the state once a second, less often if answers are slow, and shows the view that the address
// names.
// A hidden page does not poll.

import { ask } from "./api.js";
import { h, plain, show } from "./dom.js";
import * as functions from "./functions.js";
import * as jobs from "./jobs.js";
import { overview } from "./overview.js";
import * as pools from "./pools.js";
import { countOf, lines, whose } from "./problems.js";
import { moodOf, number, plural, span } from "./words.js";

const INTERVAL_MS = 1000;

// Pause between polls, as a multiple of the answers' duration.
const REST = 4;

// The title of the overview.
const SENTENCE = document.title;

const byId = (id) => document.getElementById(id);
let timer = null;
let interval = INTERVAL_MS;
let answeredAt = null;
let questions = 0;

// ---- routes -----------------------------------------------------------------------------------

// The lists, each with the number of names that identify one of its rows.
const VIEWS = { jobs: [jobs, 1], pools: [pools, 1], functions: [functions, 3] };

function decoded(name) {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

// Returns the view of `#/LIST/NAME..?PARAMETERS`: a row's if the names identify one, else the list; the overview if
// there is no such list.
function routed() {
  const [path, parameters] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const [listed, ...names] = path.split("/").map(decoded);
  const params = new URLSearchParams(parameters);
  const [views, count] = Object.hasOwn(VIEWS, listed) ? VIEWS[listed] : [null, 0];
  const view = views === null ? overview : names.length === count ? views.one : views.list;
  return { view, listed: views === null ? "" : listed, names, params };
}

// Typing in a filter replaces the address, so that the browser's Back leaves the list.
function go(path) {
  history.replaceState(null, "", path);
  again();
}

let shownPath = null;

// The tab's title, after the number of problems.
let named = SENTENCE;

// A view's title gets the focus after navigation, so that a screen reader reads it.
function enter({ view, listed, names }, found) {
  const path = `${listed}/${names.join("/")}`;
  const isFirst = shownPath === null;
  if (path === shownPath) return;
  shownPath = path;
  // An open dialog refers to the previous view.
  document.querySelector("dialog")?.close();
  const title = plain(view.title(names, found));
  named = title === "" ? SENTENCE : `${title} · Settee`;
  byId("title").textContent = title;
  byId("title").hidden = title === "";
  for (const link of byId("views").querySelectorAll("a")) {
    if (link.hash.slice(2) === listed) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  byId("view").replaceChildren();
  if (isFirst) return;
  scrollTo(0, 0);
  (title === "" ? byId("content") : byId("title")).focus({ preventScroll: true });
}

// ---- the service ------------------------------------------------------------------------------

// `more` does not have the mood's colour.
const say = (text, mood, more) => show(byId("state"), [h("span", { class: mood }, text), h("span", null, more)]);

// Shows the views, or else the form to log in.
function admit(isAdmitted) {
  byId("content").hidden = !isAdmitted;
  byId("views").hidden = !isAdmitted;
  byId("login").hidden = isAdmitted;
}

function showAll(state, found, route) {
  byId("version").textContent = state.version;
  admit(true);
  byId("logout").hidden = state.user === null;
  enter(route, found);
  show(byId("view"), [route.view.show(state, found, { ...route, go, again })]);
  const { pools: all, stale_proc_count: stale } = state.status;
  const waiting = all.reduce((sum, pool) => sum + pool.waiting, 0);
  const { status } = state.health;
  const problems = lines(state.health);
  document.title = problems.length > 0 ? `(${number(countOf(problems))}) ${named}` : named;
  const first = problems.length > 0 && [problems[0].subjects[0], whose(problems[0])].filter(Boolean).join(" at ");
  const worst = first ? `${plural(countOf(problems), "problem")}, ${first} first` : "no problem";
  say(worst, moodOf(status), [
    "; ", h("span", { class: waiting > 0 && status === "ok" && "warn" }, `${plural(waiting, "request")} ${waiting === 1 ? "waits" : "wait"} for a process`),
    stale > 0 && `; ${plural(stale, "process dates", "processes date")} from before the last reload`]);
}

function showLogin(error) {
  admit(false);
  byId("logout").hidden = error.status === 401;
  say(error.status === 401 ? "log in to see the service" : error.message, "warn");
}

async function refresh() {
  clearTimeout(timer);
  timer = null;
  const question = ++questions;
  const askedAt = Date.now();
  const route = routed();
  let state = null;
  try {
    state = await ask("/_dashboard/state");
    const found = await route.view.load({ ...route, state });
    // The visitor navigated, or logged in or out, during the request.
    if (question !== questions) return;
    answeredAt = Date.now();
    showAll(state, found, route);
  } catch (error) {
    if (question !== questions) return;
    if (state === null && (error.status === 401 || error.status === 403)) {
      showLogin(error);
    } else if (error.status !== undefined) {
      if (state !== null) gone(route, error);
      say(`the service says: ${error.message}`, "bad");
    } else {
      const since = answeredAt === null ? "" : `; this page is ${span(Date.now() - answeredAt)} old`;
      say(`the service does not answer${since}`, "bad");
    }
  }
  interval = Math.max(INTERVAL_MS, REST * (Date.now() - askedAt));
  later();
}

// The object that the address names does not exist, or no longer exists.
function gone(route, error) {
  admit(true);
  enter(route);
  show(byId("view"), [h("p", null, error.message)]);
}

const again = () => { refresh(); };

function later() {
  if (timer === null && !document.hidden) timer = setTimeout(refresh, interval);
}

async function session(method, body) {
  let reason = "Log in to see the service.";
  try {
    await ask("/_session", method, body);
  } catch (error) {
    reason = error.message;
  }
  byId("login-reason").textContent = reason;
  await refresh();
}

byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  const form = event.target;
  session("POST", { name: form.elements.name.value, password: form.elements.password.value });
  form.elements.password.value = "";
});
byId("logout").addEventListener("click", () => session("DELETE"));
document.addEventListener("visibilitychange", () => {
  clearTimeout(timer);
  timer = null;
  if (!document.hidden) refresh();
});
addEventListener("hashchange", again);

// `settee dashboard` leads here with a token that is valid once; it must not stay in the history.
const token = new URLSearchParams(location.hash.slice(1)).get("token");
if (token) {
  history.replaceState(null, "", location.pathname);
  session("POST", { token });
} else {
  refresh();
}
