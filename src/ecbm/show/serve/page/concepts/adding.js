// Add a concept: label a small set with quick keys, watch what the rest would be, adopt what is right; or bring a CSV.
import { h } from "../core/dom.js";
import { diamond, dot } from "../core/icons.js";
import { address, go } from "../core/router.js";
import { get, upload } from "../core/server.js";
import { capital, count, listed, many, percent } from "../core/words.js";
import { answer, change, load, noun, say, server, slice, stage, store } from "../core/app.js";
import { button, cap, shapes, trouble } from "../components/marks.js";
import { tile } from "../components/tile.js";

/** @typedef {import("../core/api.js").Suggested} Suggested */
/** @typedef {import("../core/api.js").Tile} Tile */

const part = slice("adding", {
  name: "", text: "", view: /** @type {Suggested | null} */ (null), at: 0, skipped: /** @type {Record<string, boolean>} */ ({}),
  given: /** @type {Record<string, number>} */ ({}), problem: /** @type {import("../core/api.js").Problem | null} */ (null),
  uploaded: /** @type {import("../core/api.js").Uploaded | null} */ (null), loading: 0,
});

export function startAdding() {
  part.reset();
  go(address("concepts") + "?add=");
  requestAnimationFrame(() => requestAnimationFrame(() => document.getElementById("new-concept")?.focus()));
}

/** @param {string} name */
export function enterAdding(name) {
  if (part.get().name !== name) part.set({ name, view: null, given: {}, skipped: {}, uploaded: null });
  if (name) fetchSuggested();
}

function fetchSuggested() {
  load(part, () => get("/api/concept/suggested", { name: part.get().name }), (view) => part.set({ view }));
}

/** @param {Event} event */
async function create(event) {
  event.preventDefault();
  const name = part.get().text.trim();
  if (!name) return;
  if (await stage({ kind: "add_concept", concept: name })) go(address("concepts", { add: name }), true);
}

/** @param {File | undefined} file */
async function bring(file) {
  if (!file) return;
  const uploaded = await change(() => upload("/api/staged/upload", file));
  if (uploaded) part.set({ uploaded });
}

/** The next picture to ask about: least certain first, none twice. @returns {Tile | undefined} */
function asked() {
  const { view, given, skipped } = part.get();
  return view?.question.find((one) => !(one.id in given) && !(one.id in skipped));
}

let later = 0;
/** @param {number} value */
function give(value) {
  const item = asked();
  const { name } = part.get();
  if (!item) return;
  answer(item.id, name, value ? "present" : "absent", "staged");
  part.set({ given: { ...part.get().given, [item.id]: value } });
  say(`${value ? "Present" : "Absent"}. ${asked()?.id ?? "Looking for the next"}`);
  // The rest is worked out again after a short run of answers, not after each.
  clearTimeout(later);
  later = window.setTimeout(fetchSuggested, asked() ? 700 : 0);
}

function skip() {
  const item = asked();
  if (item) part.set({ skipped: { ...part.get().skipped, [item.id]: true } });
}

/** Adopt what is proposed, but for those that were clicked away. @param {Tile[]} tiles @param {number} value */
function adopt(tiles, value) {
  const { name, skipped, given } = part.get();
  const chosen = tiles.filter((one) => !skipped[one.id]);
  const now = { ...given };
  for (const one of chosen) {
    answer(one.id, name, value ? "present" : "absent", "staged");
    now[one.id] = value;
  }
  part.set({ given: now });
  say(`${chosen.length} labels staged`);
  window.setTimeout(fetchSuggested, 300);
}

/** @param {Tile[]} tiles @param {number} value */
function likely(tiles, value) {
  const { skipped, given } = part.get();
  const left = tiles.filter((one) => !(one.id in given));
  const chosen = left.filter((one) => !skipped[one.id]);
  const word = value ? "present" : "absent";
  return h(
    "section",
    { class: "likely", key: word },
    h("div", { class: "spread" }, h("h2", null, dot(value), ` Likely ${word}`), button(`Adopt ${many(chosen.length, "label")}`, { icon: "diamond", disabled: chosen.length === 0, onclick: () => adopt(left, value) })),
    left.length === 0
      ? h("p", { class: "meta" }, "None yet.")
      : h("div", { class: "likely-grid" }, left.slice(0, 48).map((one) => tile({ id: one.id, source: one.thumb, badge: skipped[one.id] ? "unsure" : null, under: server().kind === "table" ? one.label : null, words: `${one.id}, likely ${word}${skipped[one.id] ? ", left out" : ""}`, onclick: toggler(one.id), title: "click to leave it out" }))),
  );
}

/** @type {Map<string, () => void>} */
const togglers = new Map();
/** @param {string} id */
function toggler(id) {
  let found = togglers.get(id);
  if (!found) {
    found = () => {
      const skipped = { ...part.get().skipped };
      if (skipped[id]) delete skipped[id];
      else skipped[id] = true;
      part.set({ skipped });
    };
    togglers.set(id, found);
  }
  return found;
}

/** @returns {import("../core/keys.js").Key[]} */
export function addingKeys() {
  return [
    { key: "1", words: "answer", run: () => give(1), tray: true },
    { key: "0", words: "answer", run: () => give(0), tray: true },
    { key: "ArrowRight", words: "skip", run: skip, tray: true },
    { key: "Escape", words: "back to the table", run: () => go(address("concepts")), tray: true },
  ];
}

function naming() {
  const { text, uploaded } = part.get();
  return h(
    "div",
    { class: "page adding-start" },
    h("h2", { class: "panel-title" }, "Add a concept"),
    h("p", { class: "soft" }, `Something one can see that the model should tell apart, such as “long legs”. You label a few ${noun()}s, the workbench proposes the rest, and you adopt what is right.`),
    h(
      "form",
      { class: "row", onsubmit: create },
      h("label", { class: "labelled grow" }, h("span", null, "Its name"), h("input", { id: "new-concept", class: "field", value: text, maxlength: 200, autocomplete: "off", oninput: (/** @type {Event} */ event) => part.set({ text: /** @type {HTMLInputElement} */ (event.target).value }) })),
      button("Label some", { kind: "ink", type: "submit", disabled: !text.trim() }),
    ),
    h("hr", { class: "line" }),
    h("h3", null, "Or bring labels from a table"),
    h("p", { class: "meta" }, "A CSV with a column “id” and a column for each new concept, with 1 for present and 0 for absent."),
    h("label", { class: "button file-button" }, "Choose a CSV …", h("input", { type: "file", accept: ".csv,text/csv", class: "unseen", onchange: (/** @type {Event} */ event) => bring(/** @type {HTMLInputElement} */ (event.target).files?.[0]) })),
    uploaded
      ? h(
          "div",
          { class: "notice", role: "status" },
          h("p", { class: "notice-title" }, diamond(), ` Staged: ${listed(uploaded.concepts.map((one) => `${one.name} with ${many(one.count, "label")}`))}`),
          uploaded.unknown_count ? h("p", null, `${many(uploaded.unknown_count, "id is", "ids are")} not in the data and were left out: ${uploaded.unknown_ids.slice(0, 5).join(", ")}`) : null,
          h("div", { class: "actions" }, button("Preview", { kind: "staged", onclick: () => go(address("preview")) })),
        )
      : null,
  );
}

export function adding() {
  const { name, view, problem, given } = part.get();
  if (!store.get().route.query.add) return naming();
  if (!view) return h("div", { class: "page" }, problem ? trouble(problem.what, problem.todo) : shapes(8));
  const item = asked();
  const present = Math.max(view.labelled_present, Object.values(given).filter((value) => value === 1).length);
  const absent = Math.max(view.labelled_absent, Object.values(given).filter((value) => value === 0).length);
  return h(
    "div",
    { class: "adding" },
    h(
      "section",
      { class: "adding-stage", "aria-label": "The question" },
      item
        ? [
            item.thumb ? h("img", { key: item.id, class: "adding-img", src: item.thumb.replace("size=thumb", "size=full"), alt: item.id }) : h("dl", { class: "fields panel" }, item.fields.map((field) => [h("dt", null, field.name), h("dd", null, String(field.value ?? "–"))])),
            h("h2", { class: "stage-question" }, `${capital(name)}: do you see it?`),
            h("p", { class: "meta" }, `${item.id}, ${item.label}`),
            h("div", { class: "answers" }, h("button", { type: "button", class: "answer", onclick: () => give(1) }, cap("1"), h("span", null, h("b", null, "Present"))), h("button", { type: "button", class: "answer", onclick: () => give(0) }, cap("0"), h("span", null, h("b", null, "Absent"))), h("button", { type: "button", class: "answer", onclick: skip }, cap("→"), h("span", null, h("b", null, "Skip")))),
          ]
        : h("p", { class: "soft" }, "Looking for the next …"),
    ),
    h(
      "section",
      { class: "adding-rest", "aria-label": "The rest", tabindex: "0" },
      h("h2", { class: "panel-title" }, name),
      h("p", { class: "dense" }, dot(1), ` ${count(present)} present `, dot(0), ` ${count(absent)} absent`, view.agreement !== null ? h("span", { class: "soft" }, ` · of left-out answers, ${percent(view.agreement)} were foreseen`) : null),
      h("p", { class: "soft dense" }, view.words),
      view.ready ? [likely(view.likely_present, 1), likely(view.likely_absent, 0)] : null,
      h("div", { class: "actions" }, button("Preview", { kind: "staged", disabled: present + absent === 0, onclick: () => go(address("preview")) }), button("Back to the table", { onclick: () => go(address("concepts")) })),
    ),
  );
}
