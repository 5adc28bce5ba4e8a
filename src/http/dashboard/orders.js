// Orders: each is confirmed in a dialog that says what will happen to what, and tells errors in place.

import { h } from "./dom.js";
import { number } from "./words.js";

// How many orders of one confirmation are under way at a time.
const AT_A_TIME = 4;

// Opens the dialog. `text` is what will happen, `fields` are [name, label, value, attributes] of numbers,
// `run` gives the order: it gets the values of the fields and what shows progress, and throws what is refused.
export function confirm({ title, text, verb, danger, fields = [], run, done }) {
  const said = h("p", { class: "bad", role: "alert" });
  const progress = h("p", { class: "quiet", role: "status" });
  const labels = fields.map(([name, label, value, attributes]) =>
    h("label", null, label, h("input", { name, type: "number", value, ...attributes })));
  const yes = h("button", { type: "submit", class: danger ? "danger" : "primary" }, verb);
  const close = () => dialog.close();
  const form = h("form", { method: "dialog" }, h("h2", { id: "dialog-title" }, title), h("p", null, text), labels, said, progress,
    h("p", { class: "buttons" }, h("button", { type: "button", onclick: close }, "Cancel"), yes));
  form.onsubmit = async (event) => {
    event.preventDefault();
    yes.disabled = true;
    said.textContent = "";
    try {
      await run(Object.fromEntries(new FormData(form)), (words) => { progress.textContent = words; });
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
  (labels[0]?.querySelector("input") ?? yes).focus();
}

// Does something with each, a few at a time; says at the end what failed.
export async function each(things, tell, act) {
  const left = [...things], failed = [];
  let ready = 0;
  const work = async () => {
    while (left.length > 0) {
      await act(left.shift()).catch((error) => failed.push(error.message));
      ready += 1;
      tell(`${number(ready)} of ${number(things.length)}`);
    }
  };
  await Promise.all(Array.from({ length: AT_A_TIME }, work));
  if (failed.length > 0) throw new Error(`${number(failed.length)} of ${number(things.length)} were refused: ${failed[0]}`);
}

export const button = (text, onclick, attributes) => h("button", { type: "button", onclick, ...attributes }, text);
