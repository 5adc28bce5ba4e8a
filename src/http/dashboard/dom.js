// Creates elements, and updates the page to a new state.
//
// A view is rebuilt at each answer; `patch` changes only what differs, so that the focus, a selection, an
// open list and the place on the page stay. Texts are set as text, never as markup: names of pools, URLs and
// reasons come from configurations, children and other servers.

const SVG = new Set(["svg", "path", "line"]);
const HANDLERS = ["onclick", "onchange", "oninput", "onsubmit"];

// Characters that end a line, move the cursor or change the direction of the text around them: texts may be hostile.
const UNPRINTABLE = /[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;
export const plain = (text) => typeof text === "string" ? text.replace(UNPRINTABLE, "\ufffd") : text;

// Functions become handlers, everything else attributes; null and false are omitted.
export function h(tag, attributes, ...children) {
  const node = SVG.has(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (typeof value === "function") node[name] = value;
    else if (value != null && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(2).filter((child) => child != null && child !== false).map(plain));
  return node;
}

// Replaces the children of an element. Those with a data-key keep their element, even if moved.
export function patch(parent, next) {
  const keyed = new Map();
  for (const child of parent.children) if (child.dataset.key !== undefined) keyed.set(child.dataset.key, child);
  let at = parent.firstChild;
  for (const node of next) {
    const key = node.dataset?.key;
    const known = key === undefined ? at : keyed.get(key);
    if (known?.nodeName !== node.nodeName || known.dataset?.key !== key) {
      parent.insertBefore(node, at);
      continue;
    }
    if (known === at) at = at.nextSibling;
    else parent.insertBefore(known, at);
    change(known, node);
  }
  while (at !== null) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

function change(old, node) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== node.data) old.data = node.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    // The visitor decides whether a list is open.
    if (!node.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  for (const { name, value } of node.attributes) {
    if (old.getAttribute(name) !== value && name !== "open") old.setAttribute(name, value);
  }
  for (const name of HANDLERS) if (old[name] !== node[name]) old[name] = node[name];
  patch(old, [...node.childNodes]);
  const isField = old.nodeName === "INPUT" || old.nodeName === "SELECT";
  if (isField && old !== document.activeElement && old.value !== node.value) old.value = node.value;
}

// Shows nodes; a moved element keeps the focus.
export function show(parent, nodes) {
  const focused = document.activeElement;
  patch(parent, nodes.flat(2).filter((node) => node != null && node !== false));
  if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
}

export const link = (path, text, attributes) => h("a", { href: path, ...attributes }, text);

// A link from names: each is encoded, since a name may have slashes.
export const to = (...names) => `#/${names.map(encodeURIComponent).join("/")}`;

// Maximum columns of a table that fits a phone.
const SLIM_MAX = 4;

// A table. `columns` are [heading, class, sorted]; `rows` are [key, ...cells], cells in the order of the columns;
// `nothing` is shown if there are no rows.
// On narrow screens a row is a card: the cell of the class "first" leads, each other cell has its heading.
export function table(id, columns, rows, nothing) {
  const cell = (value, [heading, kind = ""]) => {
    const isNumber = typeof value === "number";
    const text = isNumber ? value.toLocaleString("en") : value ?? "";
    // A long text is cut after some lines; the row's own page has all of it.
    const shown = kind.includes("text") && typeof text === "string" && text !== "" ? h("span", null, text) : text;
    const label = typeof heading === "string" ? heading : heading.textContent;
    return h("td", { class: kind, "data-label": label }, shown);
  };
  const body = rows.length === 0
    ? h("tr", { class: "none" }, h("td", { colspan: columns.length, class: "quiet" }, nothing))
    : rows.map(([key, ...cells]) => h("tr", { "data-key": key }, cells.map((value, at) => cell(value, columns[at]))));
  const head = columns.map(([heading, kind = "", sorted]) => h("th", { scope: "col", class: kind, "aria-sort": sorted && "descending" }, heading));
  return h("div", { class: "scroll", role: "region", "aria-label": `Table of ${id}`, tabindex: "0" },
    h("table", { id, class: columns.length <= SLIM_MAX && "slim" }, h("thead", null, h("tr", null, head)), h("tbody", null, body)));
}

// Facts: a list of names with values; those without a value are omitted, those marked wide get their own line.
export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value != null && value !== "");
  return h("dl", { class: "facts" }, shown.map(([name, value, wide]) =>
    h("div", { class: wide }, h("dt", null, name), h("dd", null, typeof value === "number" ? value.toLocaleString("en") : value))));
}

export const section = (title, count, ...nodes) => h("section", { "data-key": title },
  h("h2", null, title, " ", count && h("small", null, count)), nodes);

export const mood = (text, kind) => h("span", { class: kind }, text);

// A form whose fields act at once.
export const filterForm = (...fields) =>
  h("form", { class: "filter", role: "search", onsubmit: (event) => event.preventDefault() }, fields);

// A field of it for a text; `choose` gets the text.
export const searchField = (label, attributes, choose) =>
  h("label", null, label, h("input", { type: "search", ...attributes, oninput: (event) => choose(event.target.value) }));

// A field of it for one of several names.
export const choiceField = (label, id, names, chosen, choose) =>
  h("label", null, label, h("select", { id, onchange: (event) => choose(event.target.value) }, names.map((name) =>
    h("option", { value: name, selected: chosen === name }, name || `any ${label.toLowerCase()}`))));

// Returns a test whether a text contains what was searched for.
export const searched = (match) => (text) => text?.toLowerCase().includes(match.toLowerCase());

// Links to the previous and next page, and which rows of how many are shown.
export function pages(total, skip, size, path) {
  if (total <= size && skip === 0) return null;
  const end = Math.min(skip + size, total);
  const step = (text, there, at) => there ? link(path(at), text) : mood(text, "quiet");
  return h("nav", { class: "pages", "aria-label": "Pages" },
    step("← Previous", skip > 0, Math.max(skip - size, 0)),
    h("span", null, total === 0 ? "0" : `${(skip + 1).toLocaleString("en")}–${end.toLocaleString("en")} of ${total.toLocaleString("en")}`),
    step("Next →", end < total, skip + size));
}
