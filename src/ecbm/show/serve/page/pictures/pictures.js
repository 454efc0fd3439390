// All pictures of a filter as a grid: ten thousand scroll smoothly, because only those in sight are in the document.
import { h } from "../core/dom.js";
import { icon } from "../core/icons.js";
import { address, go, sampleAddress } from "../core/router.js";
import { get } from "../core/server.js";
import { capital, count, nouns, percent, shown } from "../core/words.js";
import { know, load, mark, noun, server, slice, store, things } from "../core/app.js";
import { chip, empty, linkButton, shapes, trouble } from "../components/marks.js";
import { tile } from "../components/tile.js";
import "../components/window.js";
import { concept, closeFilters, conceptTitle, filterChips, filterCount, filterOf, filtersOpen, openFilters } from "../components/filters.js";
import { keepPlace, readPlace } from "../core/preferences.js";

/** @typedef {import("../core/api.js").Tile} Tile */

const WINDOW = 120;
const SORTS = /** @type {[string, string][]} */ ([["id", "By id"], ["suspicious", "Most suspicious first"], ["uncertain", "Least certain first"], ["confidence", "Most certain first"]]);

const part = slice("pictures", {
  key: "", items: /** @type {Record<number, Tile>} */ ({}), total: 0, words: "", at: /** @type {number | null} */ (null), revision: 0,
  problem: /** @type {import("../core/api.js").Problem | null} */ (null), loading: 0, known: false,
});

/** @type {Set<number>} */
const asked = new Set();
const narrow = () => window.innerWidth < 700;
const query = () => store.get().route.query;

/** @param {Record<string, string>} words */
const keyOf = (words) => new URLSearchParams({ ...filterOf(words), sort: words.sort ?? "" }).toString();

/** @param {Record<string, string>} words */
function enter(words) {
  const key = keyOf(words);
  if (part.get().key === key && part.get().known) return;
  asked.clear();
  part.set({ key, items: {}, total: 0, known: false, at: readPlace(`${server().workspace} pictures ${key}`) });
  fetchWindow(Math.floor((part.get().at ?? 0) / WINDOW));
}

/** Tiles are asked for again in place: the grid is not emptied for one that changed. */
function refresh() {
  const windows = [...asked];
  asked.clear();
  for (const number of windows.slice(-4)) fetchWindow(number);
}

/** @param {number} number */
function fetchWindow(number) {
  if (asked.has(number)) return;
  asked.add(number);
  const words = query();
  load(
    part,
    () => get("/api/pictures", { ...filterOf(words), sort: words.sort ?? (words.near ? "similar" : ""), offset: number * WINDOW, limit: WINDOW }),
    (found) => {
      const items = { ...part.get().items };
      found.items.forEach((/** @type {Tile} */ item, /** @type {number} */ place) => {
        items[found.offset + place] = item;
        if (item.concept) know(item.id, item.concept.concept, item.concept.status, item.concept.staged, found.revision);
      });
      part.set({ items, total: found.total, words: found.words, revision: found.revision, known: true });
    },
    ` window ${number}`,
  );
}

/** @param {number} first @param {number} last */
function inSight(first, last) {
  for (let number = Math.floor(first / WINDOW); number <= Math.floor(Math.max(first, last - 1) / WINDOW); number += 1) {
    if (!asked.has(number) && part.get().known) queueMicrotask(() => fetchWindow(number));
  }
  clearTimeout(remember);
  remember = window.setTimeout(() => keepPlace(`${server().workspace} pictures ${part.get().key}`, first), 400);
}
let remember = 0;

/** The line under a picture: what matters for this filter. @param {Tile} item */
function under(item) {
  if (item.similarity !== null && item.similarity !== undefined) return `${item.label} · ${item.similarity.toFixed(2)}`;
  if (item.concept) {
    const yesNo = (concept(item.concept.concept)?.type ?? "binary") === "binary";
    return `${yesNo ? percent(Number(item.concept.predicted)) : item.concept.predicted_words} · ${item.concept.label_words === "missing" ? "no label" : item.concept.label_words}`;
  }
  return item.label;
}

/** Where the model reads another class, that one on a line of its own. @param {Tile} item */
const readAs = (item) => (!item.concept && item.similarity == null && item.right === false && item.predicted ? `read ${item.predicted}` : null);

/** @param {number} index */
function cell(index) {
  const item = part.get().items[index];
  if (!item) return h("div", { class: "tile shape", key: "empty" });
  const words = query();
  const label = item.concept;
  const given = label ? mark(item.id, label.concept, label.status) : { status: item.status, waiting: false };
  const wrong = label ? label.wrong : item.right === false;
  const badge = given.status === "staged" || given.status === "removed" ? "staged" : given.status === "kept" || given.status === "unsure" ? given.status : wrong ? "wrong" : null;
  const filter = { ...filterOf(words), sort: words.sort ?? "" };
  if (server().kind === "table") return record(item, badge, sampleAddress(item.id, filter));
  return tile({ id: item.id, source: item.thumb, badge, href: sampleAddress(item.id, filter), under: under(item), differs: readAs(item), waiting: given.waiting, words: [item.id, under(item), readAs(item)].filter(Boolean).join(", ") }, { key: "tile" });
}

/** A row of a table as a card with its first fields. @param {Tile} item @param {string | null} badge @param {string} href */
function record(item, badge, href) {
  return h(
    "a",
    { key: "record", class: ["record-card", badge], href },
    h("span", { class: "spread" }, h("b", { class: "mono" }, item.id), badge === "wrong" ? h("span", { class: "wrong-word" }, icon("unequal", 12)) : badge ? chip(badge) : null),
    h("span", { class: "meta" }, [under(item), readAs(item)].filter(Boolean).join(", ")),
    h("span", { class: "record-fields meta" }, item.fields.slice(0, 3).map((field) => h("span", { key: field.name }, `${field.name} `, h("b", null, shown(field.value))))),
  );
}

function nothing() {
  const words = query();
  const filters = filterCount(words);
  if (words.status === "staged") return empty("Nothing staged.", `Answer a question in the queue, or correct a label on a ${noun()}.`, linkButton("Queue", { href: address("queue") }));
  return empty(filters > 1 ? `No ${noun()} fits all ${filters} filters.` : `No ${noun()} fits this filter.`, "Take one away.", linkButton(`All ${nouns(noun())}`, { href: address("pictures") }));
}

/** @type {import("../components/frame.js").Page} */
export const pictures = {
  name: "pictures",
  title: () => capital(nouns(noun())),
  extra: () => h("span", { class: "soft" }, part.get().known ? (filterCount(query()) ? `${count(part.get().total)} of ${things(server().samples)}` : things(part.get().total)) : ""),
  fixed: () => true,
  enter: (route) => enter(route.query),
  refresh,
  leave: closeFilters,
  keys() {
    if (filtersOpen()) return [{ key: "Escape", words: "close", run: closeFilters, infield: true }];
    return [
      { key: "f", words: "filter", run: () => openFilters("pictures"), tray: true },
      { key: "q", words: "ask about these", run: () => ask(), tray: Boolean(query().concept) },
    ];
  },
  draw() {
    const { total, problem, known, at, items, key } = part.get();
    const words = query();
    const table = server().kind === "table";
    const sort = words.sort ?? "id";
    let body;
    if (problem && !known) body = h("div", { class: "centred" }, trouble(problem.what, problem.todo));
    else if (!known) body = h("div", { class: "page" }, shapes(8));
    else if (total === 0) body = h("div", { class: "centred" }, nothing());
    else {
      body = h("windowed-list", {
        key: `grid ${key}`, class: "picture-grid",
        given: {
          total, width: table ? 236 : narrow() ? 104 : 116, height: table ? 112 : narrow() ? 138 : 150, gap: 12, at, label: capital(nouns(noun())), inSight, item: cell,
          fixedHeight: table, inset: 16, revision: [items, store.get().marks],
        },
      });
    }
    return h(
      "div",
      { class: "pictures" },
      h(
        "div",
        { class: "filters" },
        filterChips("pictures", words, (all) => ({ sort: all.sort ?? "" })),
        h("span", { class: "gap" }),
        words.concept ? linkButton(`Ask about ${conceptTitle(words.concept)}`, { href: askAddress(), cap: "Q" }) : null,
        words.near ? null : h("label", { class: "sort" }, h("span", { class: "unseen" }, "Order"), h("select", { class: "choice faint", value: sort, onchange: (/** @type {Event} */ event) => go(address("pictures", { ...words, sort: /** @type {HTMLSelectElement} */ (event.target).value })) }, SORTS.map(([name, said]) => h("option", { key: name, value: name }, said)))),
      ),
      body,
    );
  },
};

const askAddress = () => address("queue", { ...filterOf(query()), from: "pictures" });

function ask() {
  if (query().concept) go(askAddress());
}
