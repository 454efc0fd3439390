// Find a picture by a part of its id, from anywhere.
import { h } from "../core/dom.js";
import { icon } from "../core/icons.js";
import { get } from "../core/server.js";
import { address, go, sampleAddress } from "../core/router.js";
import { load, noun, slice } from "../core/app.js";
import { things } from "../core/app.js";

const part = slice("find", { text: "", open: false, at: 0, total: 0, items: /** @type {import("../core/api.js").Tile[]} */ ([]) });

/** @param {string} text */
function typed(text) {
  part.set({ text, open: text !== "", at: 0 });
  if (text === "") return;
  load(part, () => get("/api/pictures", { find: text, limit: 8 }), (found) => part.set({ items: found.items, total: found.total }));
}

/** @param {string} id */
function open(id) {
  part.reset();
  const field = document.getElementById("find");
  if (field) field.blur();
  go(sampleAddress(id));
}

/** @param {KeyboardEvent} event */
function key(event) {
  const { items, at, open: shown, text } = part.get();
  if (event.key === "Escape") {
    part.reset();
    /** @type {HTMLElement} */ (event.target).blur();
  } else if (!shown) {
    return;
  } else if (event.key === "ArrowDown") part.set({ at: Math.min(items.length - 1, at + 1) });
  else if (event.key === "ArrowUp") part.set({ at: Math.max(0, at - 1) });
  else if (event.key === "Enter" && items[at]) open((items.find((item) => item.id === text) ?? items[at]).id);
  else return;
  event.preventDefault();
}

export function find() {
  const { text, open: shown, items, total, at } = part.get();
  const options = items.map((item, index) =>
    h(
      "li",
      { key: item.id, id: `found-${index}`, role: "option", "aria-selected": index === at, onpointerdown: () => open(item.id) },
      item.thumb ? h("img", { src: item.thumb, alt: "" }) : icon("table"),
      h("span", null, item.id),
      h("span", { class: "meta" }, item.label),
    ),
  );
  return h(
    "div",
    { class: "find", role: "search" },
    icon("search", 13),
    h("input", {
      id: "find", type: "text", value: text, placeholder: `Find a ${noun()} by its id`, autocomplete: "off", spellcheck: "false",
      role: "combobox", "aria-label": `Find a ${noun()} by its id`, "aria-expanded": shown, "aria-controls": "found",
      "aria-autocomplete": "list", "aria-activedescendant": shown && items[at] ? `found-${at}` : undefined,
      oninput: (/** @type {InputEvent} */ event) => typed(/** @type {HTMLInputElement} */ (event.target).value.trim()),
      onkeydown: key,
      onblur: () => part.set({ open: false }),
      onfocus: () => part.set({ open: text !== "" }),
    }),
    text === "" ? h("kbd", { "aria-hidden": "true" }, "/") : null,
    shown
      ? h(
          "div",
          { class: "find-list" },
          h("ul", { id: "found", role: "listbox", "aria-label": "found" }, options),
          total === 0
            ? h("p", { class: "meta" }, `No ${noun()} has “${text}” in its id.`)
            : h("p", { class: "meta" }, h("a", { class: "quiet", href: address("pictures", { find: text }), onpointerdown: () => go(address("pictures", { find: text })) }, `all ${things(total)}`)),
        )
      : null,
  );
}
