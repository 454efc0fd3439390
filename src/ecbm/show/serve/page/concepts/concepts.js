// Tidy concepts: how well each is read, how rare it is, what hangs on it, examples; and what can be done about it.
import { h } from "../core/dom.js";
import { diamond, dot, icon } from "../core/icons.js";
import { address, go, sampleAddress } from "../core/router.js";
import { get } from "../core/server.js";
import { count, nouns, percent, plain } from "../core/words.js";
import { load, noun, server, slice, store } from "../core/app.js";
import { cap, shapes, trouble } from "../components/marks.js";
import { tile } from "../components/tile.js";
import { panel, part as side, openSide, openForm } from "./panel.js";
import { adding, addingKeys, enterAdding, startAdding } from "./adding.js";

/** @typedef {import("../core/api.js").ConceptRow} Row */

const part = slice("concepts", {
  view: /** @type {import("../core/api.js").Concepts | null} */ (null), problem: /** @type {import("../core/api.js").Problem | null} */ (null),
  sort: "", down: true,
});

const query = () => store.get().route.query;

/** @param {import("../core/router.js").Route} route */
function enter(route) {
  load(part, () => get("/api/concepts"), (view) => part.set({ view }));
  if (route.query.add !== undefined) enterAdding(route.query.add);
  else if (route.query.concept) openSide(route.query.concept);
  else side.set({ name: "" });
}

/** @type {Record<string, (row: Row) => number>} */
const MEASURES = {
  right: (row) => row.figure?.share ?? 2, present: (row) => row.present, importance: (row) => row.importance,
  suspicious: (row) => row.suspicious ?? -1, staged: (row) => row.staged,
};

/** @param {Row[]} rows */
function ordered(rows) {
  const { sort, down } = part.get();
  const measure = MEASURES[sort];
  if (!measure) return rows;
  return [...rows].sort((one, other) => (down ? 1 : -1) * (measure(other) - measure(one)));
}

/** @param {string} name */
function choose(name) {
  go(address("concepts", { concept: name }), true);
}

/** @param {number} by */
function step(by) {
  const { view } = part.get();
  if (!view) return;
  const rows = ordered(view.rows);
  const place = rows.findIndex((row) => row.concept.name === query().concept);
  const next = rows[Math.max(0, Math.min(rows.length - 1, place < 0 ? 0 : place + by))];
  if (!next) return;
  choose(next.concept.name);
  requestAnimationFrame(() => document.querySelector("tr.here")?.scrollIntoView({ block: "nearest" }));
}

/** @param {string} name @param {string[]} words */
function heading(name, words) {
  const { sort, down } = part.get();
  return h(
    "th",
    { key: name, scope: "col", class: "number", "aria-sort": sort === name ? (down ? "descending" : "ascending") : "none" },
    h("button", { type: "button", class: "sort-button", onclick: () => part.set({ sort: name, down: sort === name ? !down : name !== "right" }) }, words.map((word, index) => [index ? h("br") : null, word]), sort === name ? (down ? " ↓" : " ↑") : ""),
  );
}

/** @param {Row} row @param {number} low */
function line(row, low) {
  const { concept } = row;
  const here = query().concept === concept.name;
  const share = row.figure?.share ?? null;
  const poor = share !== null && share < low;
  const grouped = concept.title !== concept.group_title && concept.short !== concept.title;
  return h(
    "tr",
    { key: concept.name, class: [here && "here", row.staged_change && "changing"], onclick: (/** @type {Event} */ event) => !(event.target instanceof Element && event.target.closest("a, button")) && choose(concept.name) },
    h("th", { scope: "row" }, h("a", { class: "plain", href: address("concepts", { concept: concept.name }), "aria-current": here ? "true" : undefined }, grouped ? [h("span", { class: "soft" }, `${concept.group_title}: `), concept.short] : concept.title), row.staged_change ? h("span", { class: "chip staged" }, diamond(8), row.staged_change) : null),
    h("td", { class: "number" }, row.figure ? h("a", { class: ["figure", poor && "wrong-word"], href: address("pictures", row.figure.query), title: `${count(row.figure.right)} of ${count(row.figure.of)}` }, poor ? [icon("unequal", 12), " "] : null, percent(share, row.figure.of)) : row.error !== null ? `off by ${plain(row.error)}\u202f${concept.unit}`.trim() : "–"),
    h("td", { class: "number" }, concept.type === "binary" ? h("a", { class: "figure", href: address("pictures", row.present_query) }, count(row.present)) : h("span", { class: "soft", title: "has values instead of present and absent" }, "–")),
    server().target === "number" ? null : h("td", { class: "number" }, count(row.importance)),
    h("td", { class: "number" }, row.suspicious === null ? "…" : row.suspicious ? h("a", { class: "figure", href: address("queue", row.suspicious_query) }, count(row.suspicious)) : "0"),
    h("td", { class: "number" }, row.staged ? h("a", { class: "staged-word figure", href: address("pictures", { concept: concept.name, status: "staged" }) }, diamond(8), ` ${count(row.staged)}`) : null),
    h("td", { class: "example-cell" }, examples(row.examples_present)),
    h("td", { class: "example-cell" }, examples(row.examples_absent)),
  );
}

/** @param {import("../core/api.js").Ref[]} refs */
const examples = (refs) => (refs[0]?.thumb ? h("div", { class: "tiles" }, refs.slice(0, 3).map((one) => tile({ id: one.id, source: one.thumb, href: sampleAddress(one.id), words: `${one.id}, ${one.label}` }))) : null);

/** @param {import("../core/api.js").Concepts} view */
function table(view) {
  const first = view.rows.find((row) => row.figure);
  const shares = view.rows.flatMap((row) => (row.figure?.share === null || !row.figure ? [] : [row.figure.share]));
  const mean = shares.reduce((sum, share) => sum + share, 0) / (shares.length || 1);
  const pictures = view.rows.some((row) => row.examples_present[0]?.thumb);
  return h(
    "div",
    { class: "concept-table", tabindex: "0", role: "region", "aria-label": "Table of concepts" },
    h(
      "table",
      { class: ["rows", !pictures && "plain-rows"] },
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          h("th", { scope: "col" }, "Concept"),
          heading("right", ["Right on", `validation${first?.figure ? `, of ${count(first.figure.of)}` : ""}`]),
          heading("present", ["Present in,", `of ${count(view.rows[0]?.labelled ?? 0)}`]),
          server().target === "number" ? null : heading("importance", ["Class hangs", `on it, of ${count(view.rows[0]?.importance_of ?? 0)}`]),
          heading("suspicious", ["Suspicious", "labels"]),
          heading("staged", ["Staged"]),
          h("th", { scope: "col" }, pictures ? [dot(1), " present"] : ""),
          h("th", { scope: "col" }, pictures ? [dot(0), " absent"] : ""),
        ),
      ),
      h("tbody", null, ordered(view.rows).map((row) => line(row, Math.min(0.93, mean - 0.04)))),
    ),
    view.added.length
      ? h("p", { class: "dense added-list" }, diamond(), " Being added: ", view.added.map((name, index) => [index ? ", " : "", h("a", { class: "staged-word", href: address("concepts", { add: name }) }, name)]))
      : null,
  );
}

/** @type {import("../components/frame.js").Page} */
export const concepts = {
  name: "concepts",
  title: () => "Concepts",
  fixed: () => true,
  extra() {
    const groups = new Set(server().concepts.map((one) => one.group)).size;
    const total = server().concepts.length;
    return [
      h("span", { class: "soft wide" }, groups > 1 && groups < total ? `${count(total)} in ${count(groups)} groups` : count(total)),
      h("button", { type: "button", class: "button", onclick: () => startAdding() }, h("span", null, "Add", h("span", { class: "wide" }, " a concept")), cap("N")),
    ];
  },
  enter,
  refresh: () => enter(store.get().route),
  keys() {
    if (query().add !== undefined) return addingKeys();
    return [
      { key: "ArrowUp", words: "choose", run: () => step(-1), tray: true },
      { key: "ArrowDown", words: "choose", run: () => step(1), tray: true },
      { key: "Enter", words: `show ${nouns(noun())}`, run: () => query().concept && go(address("pictures", { concept: query().concept })), tray: true },
      { key: "r", words: "rename", run: () => query().concept && openForm("rename"), tray: true },
      { key: "n", words: "add", run: () => startAdding(), tray: true },
      { key: "q", words: "work through its labels", run: () => query().concept && go(address("queue", { concept: query().concept })) },
      { key: "Escape", words: "close the panel", run: () => query().concept && go(address("concepts"), true) },
    ];
  },
  draw() {
    const { view, problem } = part.get();
    if (query().add !== undefined) return adding();
    if (!view) return h("div", { class: "page" }, problem ? trouble(problem.what, problem.todo) : shapes(12));
    return h("div", { class: ["concepts", query().concept && "with-panel"] }, table(view), query().concept ? panel(query().concept) : null);
  },
};
