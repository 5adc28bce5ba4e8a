// Orders: each is confirmed in a dialog that states the effect, and shows errors.

import { h } from "./dom.js";

// Opens the dialog. `text` is the effect, `fields` are [name, label, value, attributes] of numbers,
// `run` gives the order: it gets the values of the fields, and throws a refusal. Nothing can be confirmed before
// `look`, if there is one, has found the title and lines that describe the order's subject; or before the user has
// typed `typed`.
export function confirm({ title, text, verb, danger, typed, fields = [], look, run, done }) {
  const said = h("p", { class: "bad", role: "alert" });
  const heading = h("h2", { id: "dialog-title" }, title);
  const details = h("ul");
  const labels = fields.map(([name, label, value, attributes]) =>
    h("label", null, label, h("input", { name, type: "number", value, ...attributes })));
  const yes = h("button", { type: "submit", class: danger ? "danger" : "primary" }, verb);
  const close = () => dialog.close();
  const form = h("form", { method: "dialog" }, heading, h("p", null, text), details, labels, said,
    h("p", { class: "buttons" }, h("button", { type: "button", onclick: close }, "Cancel"), yes));
  const ready = (typed) => {
    yes.disabled = typed != null;
    if (typed == null) return yes.focus();
    const proof = h("input", { autocomplete: "off", required: true, oninput: () => { yes.disabled = proof.value !== `${typed}`; } });
    details.after(h("label", null, `Type ${typed}`, proof));
    proof.focus();
  };
  const prepare = async () => {
    yes.disabled = true;
    try {
      const found = await look();
      heading.textContent = found.title;
      details.append(...found.lines.map((line) => h("li", null, line)));
      ready(found.typed);
    } catch (error) {
      said.textContent = error.message;
    }
  };
  form.onsubmit = async (event) => {
    event.preventDefault();
    yes.disabled = true;
    said.textContent = "";
    try {
      await run(Object.fromEntries(new FormData(form)));
      dialog.close();
      done?.();
    } catch (error) {
      said.textContent = error.message;
      yes.disabled = false;
    }
  };
  const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, form);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  if (look) prepare();
  else if (labels.length) labels[0].querySelector("input").focus();
  else ready(typed);
}

export const button = (text, onclick, attributes) => h("button", { type: "button", onclick, ...attributes }, text);
