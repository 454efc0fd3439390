// One picture as it is looked at: what was fetched, what is being tried (nothing of it is kept), which row is chosen.
import { get, post } from "../core/server.js";
import { answer, know, load, mark, slice, store, takeBack } from "../core/app.js";
import { concept, filterOf } from "../components/filters.js";
import { isValue } from "../core/words.js";

/** @typedef {import("../core/api.js").SampleView} SampleView */
/** @typedef {import("../core/api.js").Label} Label */
/** @typedef {import("../core/api.js").Problem} Problem */

/**
 * A line that can be tried and corrected: a binary concept, or one value of a categorical or ordinal one.
 * @typedef {object} Row
 * @property {string} key
 * @property {string} concept
 * @property {string | null} value of a categorical or ordinal concept
 * @property {string} title
 * @property {Label} label
 * @property {number | null} predicted
 * @property {number | null} given the label as 1, 0 or null
 */

export const part = slice("sample", {
  id: "", view: /** @type {SampleView | null} */ (null), place: /** @type {import("../core/api.js").Place | null} */ (null),
  behind: /** @type {import("../core/api.js").BehindView | null} */ (null), chosen: /** @type {string | null} */ (null),
  tried: /** @type {Record<string, number | string>} */ ({}), result: /** @type {import("../core/api.js").Tried | null} */ (null),
  here: -1, unfolded: false, large: false, score: !matchMedia("(max-width: 860px)").matches, problem: /** @type {Problem | null} */ (null), loading: 0,
});

/** @param {Record<string, string>} query */
export const context = (query) => ({ ...filterOf(query), sort: query.sort ?? "" });

/** @param {Record<string, string>} query */
export function enter(query) {
  const id = query.id ?? "";
  if (id !== part.get().id) part.set({ id, view: null, behind: null, tried: {}, result: null, chosen: null, here: -1, large: false, problem: null, unfolded: false });
  refresh();
}

export function refresh() {
  const { query } = store.get().route;
  const { id, chosen } = part.get();
  load(part, () => get("/api/sample", { id, class_name: chosen }), (view) => {
    part.set({ view, problem: null });
    for (const group of view.groups) for (const label of group.labels) know(id, label.concept, label.status, label.staged, view.revision);
    const focus = rows(view).findIndex((row) => row.concept === query.concept);
    if (query.concept && focus >= 0 && part.get().here < 0) part.set({ here: focus });
    fetchBehind();
  });
  load(part, () => get("/api/place", { id, ...context(query) }), (place) => part.set({ place }), " place");
}

export function fetchBehind() {
  const { id, view, chosen } = part.get();
  if (!view || view.classes.length === 0) return;
  const name = chosen ?? view.classes[0].name;
  load(part, () => get("/api/behind", { id, class_name: name }), (behind) => {
    part.set({ behind });
    // Tracing takes a moment the first time; the page goes on by itself.
    if (!behind.available && behind.job && part.get().id === id && store.get().route.page === "sample") setTimeout(fetchBehind, 1000);
  }, " behind");
}

/** All lines in order. @param {SampleView} view @returns {Row[]} */
export function rows(view) {
  return view.groups.flatMap((group) => group.labels.flatMap((label) => rowsOf(label, group.labels.length > 1 && group.name !== "")));
}

/** @param {Label} label @param {boolean} grouped @returns {Row[]} */
export function rowsOf(label, grouped) {
  const info = concept(label.concept);
  if (!info || info.type === "binary") {
    const predicted = typeof label.predicted === "number" ? label.predicted : label.probability;
    const given = typeof label.label === "number" ? label.label : null;
    return [{ key: label.concept, concept: label.concept, value: null, title: grouped ? (info?.short ?? label.concept) : (info?.title ?? label.concept), label, predicted, given }];
  }
  if (info.type === "continuous") return [];
  return info.values.map((value) => ({
    key: `${label.concept}\n${value}`, concept: label.concept, value, title: value, label, predicted: label.probabilities[value] ?? 0,
    given: label.label === null ? null : Number(isValue(label.label, value)),
  }));
}

/** What is tried on a row: a number between 0 and 1, or null. @param {Row} row */
export function triedOn(row) {
  const value = part.get().tried[row.concept];
  if (value === undefined) return null;
  return row.value === null ? Number(value) : Number(value === row.value);
}

/** Try a value on a row; the class moves at once, nothing is kept. @param {Row} row @param {number} value */
export function tryValue(row, value) {
  const tried = { ...part.get().tried };
  if (row.value === null) tried[row.concept] = value;
  else if (value >= 0.5) tried[row.concept] = row.value;
  else delete tried[row.concept];
  setTried(tried);
}

/** @param {Row} row */
export function toggleTry(row) {
  if (triedOn(row) !== null) {
    const tried = { ...part.get().tried };
    delete tried[row.concept];
    setTried(tried);
  } else {
    tryValue(row, (row.predicted ?? 0) >= 0.5 ? 0 : 1);
  }
}

/** @param {Record<string, number | string>} tried */
export function setTried(tried) {
  part.set({ tried });
  if (Object.keys(tried).length === 0) {
    part.set({ result: null });
    return;
  }
  load(part, () => post("/api/try", { id: part.get().id, values: tried }), (result) => Object.keys(part.get().tried).length && part.set({ result }), " try");
}

/** Correct a label: stages the other value; once more takes it back. @param {Row} row */
export function correct(row) {
  const { id } = part.get();
  const now = mark(id, row.concept, row.label.status, row.label.staged);
  if (row.value !== null) {
    const staged = now.status === "staged" && isValue(now.value, row.value);
    if (staged) takeBack(id, row.concept);
    else answer(id, row.concept, "value", row.given === 1 ? "kept" : "staged", row.value);
    return;
  }
  if (now.status === "staged") takeBack(id, row.concept);
  else answer(id, row.concept, (row.given ?? ((row.predicted ?? 0) >= 0.5 ? 0 : 1)) >= 0.5 ? "absent" : "present", "staged");
}

/** What was tried becomes a correction of the labels. */
export function correctTried() {
  const { view, tried, id } = part.get();
  if (!view) return;
  for (const row of rows(view)) {
    const value = tried[row.concept];
    if (value === undefined) continue;
    if (row.value !== null) {
      if (value === row.value) answer(id, row.concept, "value", row.given === 1 ? "kept" : "staged", row.value);
    } else {
      const wanted = Number(value) >= 0.5 ? 1 : 0;
      answer(id, row.concept, wanted ? "present" : "absent", row.given === wanted ? "kept" : "staged");
    }
  }
  setTried({});
}
