// Understand one picture: what the model sees against what the label says, how that makes the class, and what lies behind it.
import { h } from "../core/dom.js";
import { diamond, dot, icon } from "../core/icons.js";
import { address, go, sampleAddress } from "../core/router.js";
import { count, many, plain, probability, signed, isValue } from "../core/words.js";
import { change, mark, noun, say, server, stage, store } from "../core/app.js";
import { post } from "../core/server.js";
import { cap, shapes, trouble, wrongChip } from "../components/marks.js";
import { classBar, conceptBar, scoreChart } from "../components/bars.js";
import { tile } from "../components/tile.js";
import "../components/zoom.js";
import { conceptTitle, concept, filterCount } from "../components/filters.js";
import { context, correct, correctTried, enter, fetchBehind, part, refresh, rows, rowsOf, setTried, toggleTry, triedOn, tryValue } from "./trying.js";
import { continuousRow } from "./continuous.js";

/** @typedef {import("./trying.js").Row} Row */
/** @typedef {import("./trying.js").SampleView} SampleView */

const SPLITS = /** @type {Record<string, string>} */ ({ train: "training", val: "validation", test: "test" });
const query = () => store.get().route.query;

/** @param {SampleView} view */
function media(view) {
  if (view.picture) return h("zoom-picture", { id: "zoom", given: { source: view.picture, words: view.id, pixels: view.width } });
  return h("dl", { class: "fields panel" }, view.fields.map((field) => [h("dt", { key: field.name }, field.name), h("dd", { key: `${field.name} value` }, typeof field.value === "number" ? plain(field.value) : String(field.value ?? "–"))]));
}

/** Correct the class: the label's side, staged like any other. @param {SampleView} view @param {string} name */
async function setClass(view, name) {
  if (name === view.label) {
    if (view.class_staged) await change(() => post("/api/staged/take-back", { questions: [{ id: view.id, concept: null }] }));
  } else {
    await stage({ kind: "class", id: view.id, label: name });
  }
  refresh();
}

/** @param {SampleView} view */
function facts(view) {
  const staged = view.class_staged;
  const classes = server().classes;
  return h(
    "dl",
    { class: "facts dense" },
    h("dt", null, server().target === "number" ? `${server().target_name}, label` : "Class label"),
    h(
      "dd",
      { class: "row" },
      dot(1),
      server().target === "number" || classes.length === 0
        ? h("b", null, view.label)
        : h(
            "span",
            { class: "class-choice" },
            staged ? [h("s", null, view.label), " ", diamond()] : null,
            h("select", { class: ["bare-select", staged && "staged-word"], "aria-label": "Class label; choosing another stages a correction", value: staged ?? view.label, onchange: (/** @type {Event} */ event) => setClass(view, /** @type {HTMLSelectElement} */ (event.target).value) }, classes.map((name) => h("option", { key: name, value: name }, name))),
          ),
    ),
    view.annotator ? [h("dt", null, "Labelled by"), h("dd", null, view.annotator)] : null,
    h("dt", null, "Used for"),
    h("dd", null, SPLITS[view.split] ?? view.split),
    view.split === "train" ? null : h("dd", { class: "meta wide" }, `The model does not learn from it: a correction changes what it is measured by.`),
  );
}

/** @param {SampleView} view */
function removal(view) {
  const removed = view.status === "removed";
  return h(
    "p",
    { class: "removal" },
    removed ? [diamond(), h("span", { class: "staged-word" }, " removal staged "), h("button", { type: "button", class: "quiet-link", onclick: () => undoRemoval(view.id) }, "take back")] : h("button", { type: "button", class: "quiet-link", onclick: () => remove(view.id) }, `Stage removal of this ${noun()}`),
  );
}

/** @param {string} id */
async function remove(id) {
  await stage({ kind: "remove_sample", id });
  refresh();
}

/** @param {string} id */
async function undoRemoval(id) {
  const staged = await change(() => fetch("/api/staged", { credentials: "same-origin" }).then((answer) => answer.json()));
  const items = staged?.groups.flatMap((/** @type {any} */ group) => group.items).filter((/** @type {any} */ item) => item.kind === "remove_sample" && item.id === id) ?? [];
  if (items.length) await change(() => post("/api/staged/take-back", { items: items.map((/** @type {any} */ item) => item.item) }));
  refresh();
}

/** @param {SampleView} view */
function similar(view) {
  if (view.similar.length === 0) return null;
  return h(
    "section",
    { class: "similar" },
    h("div", { class: "spread" }, h("h2", null, "Most similar in training"), h("a", { class: "quiet", href: address("pictures", { near: view.id, split: "train" }) }, "similarity, 0 to 1")),
    view.similar[0].thumb
      ? h("div", { class: "similar-grid" }, view.similar.map((one) => tile({ id: one.id, source: one.thumb, href: sampleAddress(one.id), under: `${one.label}\n${one.similarity.toFixed(2)}`, words: `${one.id}, ${one.label}, similarity ${one.similarity.toFixed(2)}`, title: `${one.id}, ${one.label}` })))
      : h("ul", { class: "similar-list dense" }, view.similar.map((one) => h("li", { key: one.id, class: "spread" }, h("a", { class: "quiet", href: sampleAddress(one.id) }, one.id), h("span", { class: "soft" }, one.label), h("span", null, one.similarity.toFixed(2))))),
  );
}

/** @param {SampleView} view */
function conceptColumn(view) {
  const all = rows(view);
  const { here, unfolded } = part.get();
  const chosen = all[here]?.key;
  /** @param {Row} row */
  const line = (row) => {
    const now = mark(view.id, row.concept, row.label.status, row.label.staged);
    const staged = now.status === "staged" ? (row.value === null ? Number(now.value ?? (row.given ? 0 : 1)) : Number(isValue(now.value, row.value))) : undefined;
    const showStaged = row.value === null || (staged !== undefined && (staged === 1 || row.given === 1));
    return conceptBar({
      key: row.key, title: row.title, group: groupOf(row), predicted: row.predicted, label: row.given, waiting: now.waiting,
      wrong: row.value === null ? row.label.wrong : row.label.wrong && (row.given === 1 || (row.predicted ?? 0) >= 0.5),
      tried: triedOn(row), staged: showStaged ? staged : undefined, here: row.key === chosen,
      onTry: (value) => { choose(all.indexOf(row)); tryValue(row, value); },
      onCorrect: () => { choose(all.indexOf(row)); correct(row); },
    });
  };
  return h(
    "section",
    { class: "sample-concepts", "aria-label": "Concepts", tabindex: "-1" },
    h(
      "div",
      { class: "concept-head" },
      h("h2", null, "Concepts"),
      h("span", { class: "meta row" }, h("span", { class: "legend-bar" }), "Model sees", cap("T"), "try"),
      h("span", { class: "meta row" }, "Label", cap("C"), "correct"),
      h("span", { class: "meta touch-hint" }, "tap a bar to try, a dot to correct"),
    ),
    h(
      "div",
      { class: ["concept-groups", unfolded && "unfolded"] },
      view.groups.map((group) =>
        h(
          "section",
          { class: "concept-group", key: group.name || "single" },
          h("h3", null, group.title),
          group.labels.map((label) => {
            const info = concept(label.concept);
            if (info?.type === "continuous") return continuousRow(view.id, label, info);
            const lines = rowsOf(label, group.labels.length > 1 && group.name !== "").map(line);
            return info && info.type !== "binary" && group.labels.length > 1 ? [h("h3", { key: `h ${label.concept}` }, info.title), lines] : lines;
          }),
        ),
      ),
    ),
    h("button", { type: "button", class: "fold", "aria-expanded": unfolded, onclick: () => part.set({ unfolded: !unfolded }) }, unfolded ? "Fewer" : "All concepts", icon("down", 14)),
  );
}

/** @param {Row} row */
function groupOf(row) {
  const info = concept(row.concept);
  return info && row.title !== info.title ? info.group_title : "";
}

/** @param {number} index */
function choose(index) {
  if (index >= 0) part.set({ here: index });
}

/** @param {SampleView} view */
function trying(view) {
  const { tried } = part.get();
  const names = Object.keys(tried);
  if (names.length === 0) return null;
  const says = names.map((name) => {
    const value = tried[name];
    return `${conceptTitle(name).replace(":", "").toLowerCase()} ${typeof value === "string" ? value : value === 1 ? "present" : value === 0 ? "absent" : probability(value)}`;
  });
  const single = names.length === 1;
  return h(
    "div",
    { class: "trying", role: "status" },
    icon("hand", 18),
    h("div", null, h("p", { class: "trying-title" }, h("b", null, single ? `Trying: ${says[0]}` : `Trying ${many(names.length, "value")}`), h("button", { type: "button", class: "quiet-link", onclick: () => setTried({}) }, "Put back", cap("Esc"))),
      h("p", { class: "trying-line" }, h("span", { class: "meta" }, "Nothing is kept."), h("button", { type: "button", class: "correct-instead", onclick: correctTried }, diamond(), single ? "Correct the label instead" : "Correct these labels instead"))),
    h("span", { class: "unseen" }, view.id),
  );
}

/** @param {SampleView} view */
function classColumn(view) {
  const { result, chosen, behind } = part.get();
  const number = server().target === "number";
  const after = (/** @type {string} */ name) => result?.classes.find((one) => one.name === name) ?? null;
  const offered = view.classes.filter((one) => one.parts.length);
  const score = offered.find((one) => one.name === chosen) ?? offered[0];
  const tried = score ? after(score.name) : null;
  const shown = view.classes.filter((one, index) => index < 3 || one.name === view.label || (after(one.name)?.probability ?? 0) > 0.1).slice(0, 6);
  return h(
    "section",
    { class: "sample-class", "aria-label": "Class", tabindex: "-1" },
    trying(view),
    h("div", { class: "class-summary" }, h("div", { class: "spread" }, h("h2", null, number ? "What it says" : "Class"), h("span", { class: "meta" }, result ? "as predicted → as tried" : number ? "" : "probability")),
    number
      ? h("p", { class: "key-figure" }, result ? [h("s", null, plain(view.number ?? 0)), " "] : null, `${plain(result?.number ?? view.number ?? 0)}${server().unit ? `\u202f${server().unit}` : ""}`)
      : h("div", { class: "class-list" }, shown.map((one, index) => classBar({ name: one.name, before: one.probability, after: result ? (after(one.name)?.probability ?? null) : null, label: one.name === view.label, first: index === 0 })))),
    h("hr", { class: "line" }),
    score
      ? h(
          "section",
          { class: ["fold-small", part.get().score && "open"] },
          h("div", { class: "spread" }, h("h2", null, number ? "What makes the number" : "What makes the score"), h("button", { type: "button", class: "quiet-link fold-button", "aria-expanded": part.get().score, onclick: () => part.set({ score: !part.get().score }) }, part.get().score ? "hide" : "show"),
            offered.length > 1
              ? h("span", { class: "segments" }, offered.slice(0, 3).map((one) => h("button", { type: "button", key: one.name, "aria-pressed": one.name === score.name, onclick: () => { part.set({ chosen: one.name }); fetchBehind(); } }, one.name)))
              : h("span", { class: "meta" }, score.name)),
          scoreChart(score, tried?.parts.length ? tried : null, Object.keys(part.get().tried), 9, number ? `Sum: the ${server().target_name}${server().unit ? `, in ${server().unit}` : ""}` : undefined),
        )
      : null,
    h("hr", { class: "line" }),
    behindList(behind, score?.name ?? ""),
  );
}

/** @param {import("../core/api.js").BehindView | null} behind @param {string} name */
function behindList(behind, name) {
  return h(
    "section",
    { class: "behind" },
    h("div", { class: "spread" }, h("h2", null, "Training labels behind it"), h("span", { class: "meta" }, behind?.available && behind.labels.length ? `score they add to ${name}` : "")),
    behind === null ? shapes(3)
      : !behind.available || behind.labels.length === 0 ? h("p", { class: "meta" }, behind.words)
      : [
          behind.labels.map((one) =>
            h(
              "div",
              { class: "behind-line", key: `${one.id} ${one.concept}` },
              tile({ id: one.id, source: one.thumb, href: sampleAddress(one.id, one.concept ? { concept: one.concept } : {}), words: one.id }),
              h("div", null, h("p", { class: "dense" }, one.title, " ", one.concept ? [dot(one.label_words === "present" ? 1 : one.label_words === "absent" ? 0 : null), " "] : null, one.label_words), h("p", { class: "meta" }, h("a", { class: "quiet", href: sampleAddress(one.id, one.concept ? { concept: one.concept } : {}) }, one.id))),
              h("span", { class: "number dense" }, signed(one.adds)),
            )),
          behind.words ? h("p", { class: "meta behind-words" }, behind.words) : null,
        ],
  );
}

/** @param {1 | -1} way */
function neighbour(way) {
  const { place } = part.get();
  const id = way === 1 ? place?.next : place?.previous;
  if (id) go(sampleAddress(id, context(query())), true);
}

/** @param {number} by */
function moveRow(by) {
  const { view, here } = part.get();
  if (!view) return;
  const all = rows(view);
  const next = Math.max(0, Math.min(all.length - 1, here + by));
  part.set({ here: next });
  say(`${all[next].title}: the model sees ${probability(all[next].predicted)}`);
  requestAnimationFrame(() => {
    const track = document.querySelector(`.bar-track[data-row="${CSS.escape(all[next].key)}"]`);
    if (track instanceof HTMLElement) track.focus();
  });
}

/** @param {(row: Row) => void} act */
function onRow(act) {
  const { view, here } = part.get();
  const row = view ? rows(view)[Math.max(0, here)] : null;
  if (here < 0) part.set({ here: 0 });
  if (row) act(row);
}

/** @type {import("../components/frame.js").Page} */
export const sample = {
  name: "sample",
  rail: "pictures",
  title: () => store.get().route.query.id ?? "",
  fixed: () => true,
  extra() {
    const { view, place } = part.get();
    if (!view) return null;
    return [
      view.right === false ? wrongChip(h("span", { class: "wide" }, `read as ${view.predicted}, labelled ${view.label}`), h("span", { class: "narrow" }, "class")) : null,
      place && place.place !== null && place.total > 1
        ? h(
            "span",
            { class: "row nowrap wide" },
            h("button", { type: "button", class: "button bare icon-only", "aria-label": "the one before", disabled: !place.previous, onclick: () => neighbour(-1) }, icon("left")),
            h("span", { class: "soft" }, `${count(place.place + 1)} of ${count(place.total)}${place.total < server().samples && filterCount(query()) ? ` ${contextWords()}` : ""}`),
            h("button", { type: "button", class: "button bare icon-only", "aria-label": "the next one", disabled: !place.next, onclick: () => neighbour(1) }, icon("right")),
          )
        : null,
    ];
  },
  enter: (route) => enter(route.query),
  refresh,
  leave: () => setTried({}),
  keys: () => [
    { key: "t", words: "try a value", run: () => onRow(toggleTry), tray: true },
    { key: "c", words: "correct the label", run: () => (Object.keys(part.get().tried).length ? correctTried() : onRow(correct)), tray: true },
    { key: "ArrowUp", words: "choose a concept", run: () => moveRow(-1) },
    { key: "ArrowDown", words: "choose a concept", run: () => moveRow(1) },
    { key: "ArrowLeft", words: "back, next", run: () => neighbour(-1), tray: true },
    { key: "ArrowRight", words: "back, next", run: () => neighbour(1), tray: true },
    { key: "z", words: "zoom", run: () => /** @type {any} */ (document.getElementById("zoom"))?.toggle?.(), tray: server().kind === "pictures" },
    ...(Object.keys(part.get().tried).length ? [{ key: "Escape", words: "put back what was tried", run: () => setTried({}), infield: true }] : []),
  ],
  draw() {
    const { view, problem } = part.get();
    if (!view) return h("div", { class: "page" }, problem ? trouble(problem.what, problem.todo) : shapes(8));
    return h(
      "div",
      { class: ["sample", part.get().large && "large"] },
      h("section", { class: "sample-picture", "aria-label": view.picture ? "Picture" : "Fields", tabindex: "-1" }, h("div", { class: "sample-media" }, media(view), h("button", { type: "button", class: "button icon-only enlarge", "aria-label": part.get().large ? "smaller picture" : "larger picture", onclick: () => part.set({ large: !part.get().large }) }, icon(part.get().large ? "minus" : "plus", 12))), facts(view), removal(view), h("hr", { class: "line" }), similar(view)),
      conceptColumn(view),
      classColumn(view),
    );
  },
};

function contextWords() {
  const words = query();
  if (words.wrong) return "read wrong";
  return words.changed ? `changed by version ${words.changed}` : "that fit";
}
