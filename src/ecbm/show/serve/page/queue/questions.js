// The questions of a queue: fetched in windows, kept by their place. Suspicious labels first, or any filter about a concept.
import { get } from "../core/server.js";
import { know, load, server, slice, store } from "../core/app.js";
import { filterOf } from "../components/filters.js";
import { keepPlace, readPlace } from "../core/preferences.js";

/** @typedef {import("../core/api.js").Question} Question */
/** @typedef {import("../core/api.js").QuestionDetail} Detail */
/** @typedef {import("../core/api.js").Problem} Problem */

const WINDOW = 100;

/**
 * @typedef {object} Part
 * @property {string} key the filter the questions are of
 * @property {Record<number, Question>} items
 * @property {number} total
 * @property {number} answered
 * @property {boolean} ready
 * @property {string | null} job
 * @property {import("../core/api.js").Count[]} concepts
 * @property {number} at
 * @property {boolean} blind
 * @property {Record<string, Detail>} details
 * @property {number} revision
 * @property {Problem | null} problem
 * @property {number} loading
 * @property {boolean} reasons whether all reasons are unfolded on a small screen
 */

export const part = slice("queue", /** @type {Part} */ ({
  key: "", items: {}, total: 0, answered: 0, ready: true, job: null, concepts: [], at: 0, blind: false, details: {}, revision: 0,
  problem: null, loading: 0, reasons: false,
}));

/** @type {Set<number>} */
const asked = new Set();

/** Where the place is remembered. @param {string} key */
const placeName = (key) => `${server().workspace} queue ${key}`;

/** @param {Record<string, string>} query */
export const sourceOf = (query) => (query.from === "pictures" && query.concept ? "pictures" : "suspicious");

/** @param {Record<string, string>} query */
const keyOf = (query) => new URLSearchParams({ ...filterOf(query), from: sourceOf(query), ...(query.sort ? { sort: query.sort } : {}) }).toString();

/**
 * The address changed: another filter, or another place in the same one.
 * @param {Record<string, string>} query
 */
export function enter(query) {
  const key = keyOf(query);
  if (part.get().key !== key || part.get().total === 0) {
    asked.clear();
    const kept = readPlace(placeName(key));
    const at = query.at !== undefined ? Number(query.at) || 0 : (kept?.at ?? 0);
    part.set({ key, items: {}, total: 0, at, details: {}, problem: null });
    fetchWindow(Math.floor(at / WINDOW), query, kept?.question ?? null);
  }
}

/** What is shown is asked for again: another version may have other questions. @param {Record<string, string>} query */
export function refresh(query) {
  asked.clear();
  const { at, items } = part.get();
  part.set({ details: {} });
  fetchWindow(Math.floor(at / WINDOW), query, items[at] ? `${items[at].id}\n${items[at].concept}` : null, true);
}

/**
 * @param {number} number
 * @param {Record<string, string>} query
 * @param {string | null} [sought] the question somebody was at, should the order have changed
 * @param {boolean} [anew] what is kept of other windows is of another version
 */
function fetchWindow(number, query, sought = null, anew = false) {
  if (number < 0 || asked.has(number)) return;
  asked.add(number);
  const filter = { ...filterOf(query), sort: query.sort, offset: number * WINDOW, limit: WINDOW };
  const suspicious = sourceOf(query) === "suspicious";
  load(
    part,
    () => get(suspicious ? "/api/queue" : "/api/pictures", filter),
    (found) => {
      /** @type {Record<number, Question>} */
      const items = anew ? {} : { ...part.get().items };
      found.items.forEach((/** @type {any} */ item, /** @type {number} */ place) => {
        const question = suspicious ? item : asQuestion(item, query.concept);
        items[found.offset + place] = question;
        know(question.id, question.concept, question.status, null);
      });
      const total = found.total;
      let at = Math.max(0, Math.min(part.get().at, total - 1));
      if (sought) {
        const there = Object.entries(items).find(([, item]) => `${item.id}\n${item.concept}` === sought);
        if (there) at = Number(there[0]);
      }
      part.set({ items, total, at, answered: found.answered ?? 0, ready: found.ready ?? true, job: found.job ?? null, concepts: found.concepts ?? part.get().concepts, revision: found.revision });
      // An event tells when the list is ready; it may have come before this page listened.
      if (found.ready === false) setTimeout(() => store.get().route.page === "queue" && refresh(store.get().route.query), 1000);
      if (!items[at] && total > 0) fetchWindow(Math.floor(at / WINDOW), query);
      else fetchDetail(at);
    },
    ` window ${number}`,
  );
}

/** A picture of any filter is a question about the filter's concept. @param {import("../core/api.js").Tile} tile @param {string} concept @returns {Question} */
function asQuestion(tile, concept) {
  const label = tile.concept;
  return /** @type {any} */ ({
    id: tile.id, concept, title: "", thumb: tile.thumb, split: tile.split, score: 0, why: "", label_words: label?.label_words ?? "missing",
    predicted_words: label?.predicted_words ?? "", status: label?.status ?? tile.status, fields: tile.fields,
  });
}

/** Items in sight of the strip. @param {number} first @param {number} last @param {Record<string, string>} query */
export function inSight(first, last, query) {
  const { items } = part.get();
  for (let number = Math.floor(first / WINDOW); number <= Math.floor(Math.max(first, last - 1) / WINDOW); number += 1) {
    if (!items[number * WINDOW]) queueMicrotask(() => fetchWindow(number, query));
  }
}

/** @param {Question} question */
export const detailKey = (question) => `${question.id}\n${question.concept ?? ""}`;

/** The reasons of a question, and quietly those of the next, with its picture. @param {number} at */
export function fetchDetail(at) {
  for (const place of [at, at + 1]) {
    const question = part.get().items[place];
    if (!question || part.get().details[detailKey(question)]) continue;
    load(
      part,
      () => get("/api/question", { id: question.id, concept: question.concept }),
      (detail) => {
        part.set({ details: { ...part.get().details, [detailKey(question)]: detail } });
        if (place !== at && detail.picture) new Image().src = detail.picture;
      },
      ` detail ${place - at}`,
    );
  }
}

/**
 * Go to a place; it survives a reload.
 * @param {number} at
 * @param {Record<string, string>} query
 */
export function goTo(at, query) {
  const { total, key } = part.get();
  const place = Math.max(0, Math.min(total - 1, at));
  part.set({ at: place, reasons: false });
  const item = part.get().items[place];
  keepPlace(placeName(key), { at: place, question: item ? detailKey(item) : null });
  const words = new URLSearchParams({ ...query, at: String(place) });
  history.replaceState(null, "", `/queue?${words}`);
  if (!item) inSight(place, place + 1, query);
  else fetchDetail(place);
}
