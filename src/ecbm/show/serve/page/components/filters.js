// A filter is the page's own address. Chips say it in words and can be taken away; the menu adds another.
import { h } from "../core/dom.js";
import { icon } from "../core/icons.js";
import { address, go } from "../core/router.js";
import { server, slice, store } from "../core/app.js";
import { cap } from "./marks.js";

/** @typedef {Record<string, string>} Filter */
/** @typedef {{ section: string, words: string, add: Filter }} Option */

const NAMES = ["split", "label", "predicted", "concept", "value", "read", "wrong", "changed", "status", "unsure_by", "annotator", "find", "ids", "near"];
const SPLITS = /** @type {Filter} */ ({ train: "Training", val: "Validation", test: "Test" });
const STATUSES = /** @type {Filter} */ ({ staged: "Staged", answered: "Answered", unsure: "Unsure", open: "Not answered" });

const part = slice("filters", { open: "", text: "" });

/** The part of an address that is a filter. @param {Filter} query @returns {Filter} */
export function filterOf(query) {
  return Object.fromEntries(NAMES.filter((name) => query[name]).map((name) => [name, query[name]]));
}

/** @param {string} name */
export const concept = (name) => server().concepts.find((one) => one.name === name);

/** @param {string} name */
export const conceptTitle = (name) => concept(name)?.title ?? name;

/** One filter in words: what it is about, and the value. @param {string} name @param {string} value @returns {[string, string]} */
function words(name, value) {
  switch (name) {
    case "split": return ["", SPLITS[value] ?? value];
    case "label": return ["Class", value];
    case "predicted": return ["Read as", value];
    case "concept": return ["Concept", conceptTitle(value)];
    case "value": return ["Labelled", value];
    case "read": return ["Model sees", value];
    case "wrong": return ["", value === "class" ? "Class read wrong" : value === "concept" ? "Concept read wrong" : "Read wrong"];
    case "changed": return ["", `Changed by version ${value}`];
    case "status": return ["", STATUSES[value] ?? value];
    case "unsure_by": return ["Unsure", value];
    case "find": return ["Id has", value];
    case "ids": return ["", `${value.split(",").length} chosen`];
    case "near": return ["Similar to", value];
    default: return [name, value];
  }
}

/** All that could be added. @param {Filter} now @returns {Option[]} */
function options(now) {
  const state = server();
  /** @type {Option[]} */
  const found = [];
  const add = (/** @type {string} */ section, /** @type {string} */ said, /** @type {Filter} */ what) => found.push({ section, words: said, add: what });
  if (now.concept) {
    const info = concept(now.concept);
    for (const value of info?.type === "binary" ? ["present", "absent", "missing"] : [...(info?.values ?? []), "missing"]) {
      add(`${conceptTitle(now.concept)}, label`, `Labelled ${value}`, { value });
    }
    for (const read of info?.type === "binary" ? ["present", "absent"] : (info?.values ?? [])) add(`${conceptTitle(now.concept)}, model`, `Model sees ${read}`, { read });
    add(`${conceptTitle(now.concept)}, model`, "Model and label differ", { wrong: "concept" });
  }
  for (const info of state.concepts) add("Concept", info.title, { concept: info.name, value: "", read: "" });
  add("Model and label", "Class read wrong", { wrong: "class" });
  add("Model and label", "Any concept read wrong", { wrong: "concept" });
  for (const split of Object.keys(state.splits)) add("Used for", SPLITS[split] ?? split, { split });
  for (const label of state.classes) add("Class label", label, { label });
  for (const predicted of state.classes) add("Read as", `Read as ${predicted}`, { predicted });
  for (const [status, said] of Object.entries(STATUSES)) add("Your answers", said, { status });
  for (const annotator of state.annotators) add("Annotator", annotator, { annotator });
  for (let version = state.version; version > 1 && version > state.version - 30; version -= 1) add("Changed by", `Changed by version ${version}`, { changed: String(version) });
  return found;
}

/** @param {string} page */
export function openFilters(page) {
  part.set({ open: page, text: "" });
  requestAnimationFrame(() => requestAnimationFrame(() => document.getElementById("filter-text")?.focus()));
}

export const closeFilters = () => part.set({ open: "" });

/** @param {string} page @param {Filter} query */
const show = (page, query) => go(address(page, query));

/** @param {KeyboardEvent} event */
function keys(event) {
  const menu = /** @type {HTMLElement} */ (event.currentTarget);
  if (event.key === "Escape") {
    closeFilters();
    document.getElementById("filter-add")?.focus();
  } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    const all = /** @type {HTMLElement[]} */ ([...menu.querySelectorAll("input, button")]);
    const place = all.indexOf(/** @type {HTMLElement} */ (document.activeElement)) + (event.key === "ArrowDown" ? 1 : -1);
    all[Math.max(0, Math.min(all.length - 1, place))]?.focus();
  } else if (event.key === "Enter" && document.activeElement?.tagName === "INPUT") {
    menu.querySelector("button")?.click();
  } else {
    return;
  }
  event.preventDefault();
  event.stopPropagation();
}

/**
 * @param {string} page
 * @param {Filter} query the address now
 * @param {(query: Filter) => Filter} [kept] what else of the address stays when the filter changes
 */
export function filterChips(page, query, kept = () => ({})) {
  const now = filterOf(query);
  const { open, text } = part.get();
  const chips = Object.entries(now).map(([name, value]) => {
    const [about, said] = words(name, value);
    const rest = { ...now, ...kept(query), [name]: "" };
    if (name === "concept") Object.assign(rest, { value: "", read: "" });
    return h("button", { key: name, type: "button", class: "choice", "aria-label": `Take away the filter ${about} ${said}`, onclick: () => show(page, rest) }, h("span", null, about ? `${about}: ` : "", h("b", null, said)), icon("close", 11));
  });
  return [
    chips,
    h(
      "span",
      { class: "anchored", key: "add" },
      h("button", { type: "button", id: "filter-add", class: "choice faint", "aria-expanded": open === page, onclick: () => (open === page ? closeFilters() : openFilters(page)) }, "Add a filter", cap("F")),
      open === page ? menu(page, now, query, kept, text) : null,
    ),
  ];
}

/** @param {string} page @param {Filter} now @param {Filter} query @param {(query: Filter) => Filter} kept @param {string} text */
function menu(page, now, query, kept, text) {
  const wanted = text.toLowerCase();
  const fitting = options(now).filter((one) => `${one.section} ${one.words}`.toLowerCase().includes(wanted));
  const sections = [...new Set(fitting.map((one) => one.section))];
  return h(
    "div",
    { class: "filter-menu", role: "dialog", "aria-label": "Add a filter", onkeydown: keys, onfocusout: (/** @type {FocusEvent} */ event) => leaveMenu(event) },
    h("input", { id: "filter-text", class: "field", "aria-label": "Part of a filter's name", placeholder: "concept, class, split …", value: text, oninput: (/** @type {Event} */ event) => part.set({ text: /** @type {HTMLInputElement} */ (event.target).value }) }),
    sections.map((section) => [
      h("h3", { key: `h ${section}` }, section),
      fitting.filter((one) => one.section === section).map((one) =>
        h("button", { key: `${section} ${one.words}`, type: "button", onclick: () => { closeFilters(); show(page, { ...now, ...kept(query), ...one.add }); } }, one.words)),
    ]),
    fitting.length === 0 ? h("p", { class: "meta" }, "No filter has such a name.") : null,
  );
}

/** @param {FocusEvent} event */
function leaveMenu(event) {
  const menu = /** @type {HTMLElement} */ (event.currentTarget);
  if (event.relatedTarget instanceof Node && !menu.contains(event.relatedTarget)) closeFilters();
}

document.addEventListener("pointerdown", (event) => {
  if (part.get().open && event.target instanceof Element && !event.target.closest(".filter-menu, #filter-add")) closeFilters();
});

/** How many filters are set: for the words when nothing fits all of them. @param {Filter} query */
export const filterCount = (query) => Object.keys(filterOf(query)).length;

export const filtersOpen = () => store.get().pages.filters?.open ?? "";
