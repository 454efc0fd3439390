// One concept beside the table: what it looks like, how it pushes each class, and rename, merge, label more, remove.
import { h } from "../core/dom.js";
import { diamond, dot, icon } from "../core/icons.js";
import { address, go, sampleAddress } from "../core/router.js";
import { get, post } from "../core/server.js";
import { count, many, nouns } from "../core/words.js";
import { change, load, noun, server, slice, stage, store } from "../core/app.js";
import { button, linkButton, shapes, trouble } from "../components/marks.js";
import { pushBar } from "../components/bars.js";
import { tile } from "../components/tile.js";

/** @typedef {import("../core/api.js").ConceptDetail} Detail */

export const part = slice("concept panel", {
  name: "", detail: /** @type {Detail | null} */ (null), problem: /** @type {import("../core/api.js").Problem | null} */ (null),
  form: /** @type {"" | "rename" | "merge"} */ (""), text: "", other: "",
});

/** @param {string} name */
export function openSide(name) {
  if (part.get().name !== name) part.set({ name, detail: null, form: "", text: "", other: "" });
  load(part, () => get("/api/concept", { name }), (detail) => part.set({ detail }));
}

/** @param {"rename" | "merge"} form */
export function openForm(form) {
  const { detail } = part.get();
  part.set({ form, text: detail?.row.concept.name ?? "", other: "" });
  requestAnimationFrame(() => requestAnimationFrame(() => document.getElementById("concept-form")?.querySelector("input, select") instanceof HTMLElement && /** @type {HTMLElement} */ (document.getElementById("concept-form")?.querySelector("input, select")).focus()));
}

/** @param {any} item */
async function put(item) {
  if (await stage(item)) {
    part.set({ form: "", text: "", other: "" });
    go(location.pathname + location.search, true);
  }
}

/** Take back what is staged about a concept as a whole. @param {string} name */
async function takeBackChange(name) {
  const staged = /** @type {import("../core/api.js").Staged | null} */ (await change(() => get("/api/staged")));
  const items = staged?.groups.flatMap((group) => group.items).filter((item) => item.concept === name && item.kind !== "label").map((item) => item.item) ?? [];
  if (items.length) await change(() => post("/api/staged/take-back", { items }));
  go(location.pathname + location.search, true);
}

/** @param {string} name */
function form(name) {
  const { form: kind, text, other } = part.get();
  if (!kind) return null;
  const others = server().concepts.filter((one) => one.name !== name && one.type === "binary");
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (kind === "rename" && text.trim() && text.trim() !== name) put({ kind: "rename_concept", concept: name, name: text.trim() });
    if (kind === "merge" && other) put({ kind: "merge_concepts", concept: name, other, name: text.trim() || name });
  };
  return h(
    "form",
    { id: "concept-form", class: "concept-form", onsubmit: submit, onkeydown: (/** @type {KeyboardEvent} */ event) => { if (event.key === "Escape") { event.stopPropagation(); part.set({ form: "" }); } } },
    kind === "merge"
      ? h("label", { class: "labelled" }, h("span", null, "Merge with: present where either is"), h("select", { class: "field", value: other, onchange: (/** @type {Event} */ event) => part.set({ other: /** @type {HTMLSelectElement} */ (event.target).value }) }, h("option", { value: "" }, "choose …"), others.map((one) => h("option", { key: one.name, value: one.name }, one.title))))
      : null,
    h("label", { class: "labelled" }, h("span", null, kind === "merge" ? "Name of the merged concept" : "New name"), h("input", { class: "field", value: text, maxlength: 200, oninput: (/** @type {Event} */ event) => part.set({ text: /** @type {HTMLInputElement} */ (event.target).value }) })),
    h("div", { class: "actions" }, button(kind === "merge" ? "Stage the merge" : "Stage the new name", { type: "submit", icon: "diamond", disabled: kind === "merge" ? !other : !text.trim() || text.trim() === name }), button("Cancel", { kind: "quiet", onclick: () => part.set({ form: "" }) })),
  );
}

/** @param {import("../core/api.js").Ref[]} refs @param {number} value @param {number} total @param {string} query */
function side(refs, value, total, query) {
  return h(
    "div",
    { class: "panel-examples", key: value },
    h("p", { class: "meta spread" }, h("span", null, dot(value), value ? " labelled present" : " labelled absent"), h("a", { class: "quiet", href: address("pictures", query) }, count(total))),
    refs[0]?.thumb ? h("div", { class: "panel-grid" }, refs.slice(0, 4).map((one) => tile({ id: one.id, source: one.thumb, href: sampleAddress(one.id), words: one.id }))) : null,
  );
}

/** @param {string} name */
export function panel(name) {
  const { detail, problem, form: shown } = part.get();
  const close = h("button", { type: "button", class: "button bare icon-only", "aria-label": "Close the panel", onclick: () => go(address("concepts"), true) }, icon("close"));
  if (!detail) return h("aside", { class: "concept-panel" }, h("div", { class: "spread" }, h("h2", null, name), close), problem ? trouble(problem.what, problem.todo) : shapes(8));
  const { row, pushes, notes } = detail;
  const largest = Math.max(...pushes.map((one) => Math.abs(one.weight)), 0);
  const binary = row.concept.type === "binary";
  return h(
    "aside",
    { class: "concept-panel", "aria-label": row.concept.title, tabindex: "-1" },
    h("div", { class: "spread" }, h("h2", { class: "panel-title" }, row.concept.title), close),
    row.concept.description ? h("p", { class: "soft dense" }, row.concept.description) : null,
    row.staged_change
      ? h("p", { class: "row dense" }, h("span", { class: "chip staged" }, diamond(8), row.staged_change), h("button", { type: "button", class: "quiet-link", onclick: () => takeBackChange(name) }, "take back"))
      : h("div", { class: "actions" }, button("Rename", { onclick: () => openForm("rename") }), binary ? button("Merge…", { onclick: () => openForm("merge") }) : null, binary ? linkButton("Label more", { href: address("queue", { concept: name, value: "missing", from: "pictures" }) }) : null),
    shown ? form(name) : null,
    binary
      ? [side(detail.present, 1, row.present, detail.present_query), side(detail.absent, 0, detail.absent_count, detail.absent_query)]
      : h("p", { class: "dense" }, h("a", { class: "quiet", href: address("pictures", detail.present_query) }, `Labelled in ${count(row.labelled)} training ${nouns(noun())}`), row.concept.values.length ? `: ${row.concept.values.join(", ")}` : row.concept.unit ? `, in ${row.concept.unit}` : ""),
    pushes.length ? h("section", null, h("div", { class: "spread" }, h("h2", null, server().target === "number" ? "How it pushes the number" : "How it pushes each class"), h("span", { class: "meta" }, binary ? "score if present" : row.concept.type === "continuous" ? "score, the more of it" : "score, its strongest value")), h("div", { class: "pushes" }, pushes.slice(0, 12).map((one) => pushBar(one.name, one.weight, largest)))) : null,
    notes.length ? h("section", { class: "panel-notes" }, notes.map((note) => h("p", { class: "dense", key: note }, note))) : null,
    row.suspicious ? linkButton(`Work through ${many(row.suspicious, "label")}`, { kind: "ink", cap: "Q", href: address("queue", row.suspicious_query) }) : null,
    row.staged_change
      ? null
      : h("div", { class: "panel-foot" }, button("Stage removal", { icon: "close", onclick: () => put({ kind: "remove_concept", concept: name }) }), server().target === "number" ? null : h("p", { class: "meta" }, row.importance ? `The class of ${count(row.importance)} of ${count(row.importance_of)} validation ${nouns(noun())} hangs on it.` : `No validation ${noun()} changes class without it.`)),
    store.get().connection === "gone" ? h("span", null) : null,
  );
}
