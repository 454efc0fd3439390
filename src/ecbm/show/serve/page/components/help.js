// "?": all keys of this page and of every page, and whether single letters are keys at all.
import { h } from "../core/dom.js";
import { caps } from "../core/keys.js";
import { store } from "../core/app.js";
import { preferences } from "../core/preferences.js";
import { button, cap } from "./marks.js";

export function closeOver() {
  store.set({ over: "" });
}

/** @param {boolean} letters */
function setLetters(letters) {
  const wanted = { ...store.get().preferences, letters };
  preferences.keep(wanted);
  store.set({ preferences: wanted });
}

/** @param {string} title @param {[string[], string][]} lines */
function group(title, lines) {
  return h(
    "section",
    { key: title },
    h("h3", null, title),
    h("dl", null, lines.map(([shown, words]) => [h("dt", null, cap(...shown)), h("dd", null, words)])),
  );
}

/**
 * @param {import("./frame.js").Page} page
 * @param {import("../core/keys.js").Key[]} keys
 */
export function help(page, keys) {
  /** @type {[string[], string][]} */
  const own = (page.keys?.() ?? []).map((key) => [caps(key), key.words]);
  const seen = new Set(own.map(([, words]) => words));
  /** @type {[string[], string][]} */
  const everywhere = keys.map((key) => /** @type {[string[], string]} */ ([caps(key), key.words])).filter(([, words]) => !seen.has(words));
  /** @type {[string[], string][]} */
  const goto = [["O", "overview"], ["Q", "queue"], ["P", "pictures"], ["C", "concepts"], ["H", "history"]].map(([key, words]) => [["G", key], words]);
  const { letters } = store.get().preferences;
  return h(
    "div",
    { class: "sheet-scrim", key: "help", onclick: (/** @type {Event} */ event) => event.target === event.currentTarget && closeOver() },
    h(
      "div",
      { class: "sheet", role: "dialog", "aria-modal": "true", "aria-labelledby": "help-title", tabindex: "-1", ref: (/** @type {HTMLElement} */ element) => queueMicrotask(() => element.focus()) },
      h("div", { class: "spread" }, h("h2", { id: "help-title" }, "Keys"), button("Close", { cap: "Esc", onclick: closeOver })),
      h("div", { class: "help-groups" }, own.length ? group(`On this page: ${page.title()}`, own) : null, group("Everywhere", everywhere), group("Go to", goto)),
      h(
        "div",
        { class: "switches" },
        h("label", null, h("input", { type: "checkbox", checked: letters, onchange: (/** @type {Event} */ event) => setLetters(/** @type {HTMLInputElement} */ (event.target).checked) }), "Single letters and digits are keys"),
        h("span", { class: "meta" }, "They rest while a field has the focus."),
      ),
    ),
  );
}
