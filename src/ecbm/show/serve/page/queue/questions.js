// The questions of a queue: fetched in windows, kept by their place. Suspicious labels first, or any filter about a concept.
import { get, post } from "../core/server.js";
import { know, load, server, slice, store, waitingWrites } from "../core/app.js";
import { finish } from "../core/jobs.js";
import { filterOf } from "../components/filters.js";
import { keepPlace, readPlace } from "../core/preferences.js";

/** @typedef {import("../core/api.js").Question} Question */
/** @typedef {import("../core/api.js").QuestionDetail} Detail */
/** @typedef {import("../core/api.js").Problem} Problem */

const WINDOW = 100;
/** After so many answers what follows is put in a new order. */
const LEARN_EVERY = 10;

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
 * @property {number} ranking the order that answers have led to; 0: the version's own
 * @property {number} moved how many questions it brought nearer
 * @property {number} fresh answers since the last order
 */

export const part = slice("queue", /** @type {Part} */ ({
  key: "", items: {}, total: 0, answered: 0, ready: true, job: null, concepts: [], at: 0, blind: false, details: {}, revision: 0,
  problem: null, loading: 0, reasons: false, ranking: 0, moved: 0, fresh: 0,
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
    part.set({ key, items: {}, total: 0, at, details: {}, problem: null, ranking: kept?.version === server().version ? (kept.ranking ?? 0) : 0, moved: 0, fresh: 0 });
    fetchWindow(Math.floor(at / WINDOW), query, { sought: query.at === undefined ? (kept?.question ?? null) : null });
  }
}

/** What is shown is asked for again: another version may have other questions. @param {Record<string, string>} query */
export function refresh(query) {
  asked.clear();
  fetchWindow(Math.floor(part.get().at / WINDOW), query, { anew: true });
}

/**
 * @param {number} number
 * @param {Record<string, string>} query
 * @param {{ sought?: string | null, anew?: boolean }} [how] `sought`: the question somebody was at before the page was loaded;
 *   `anew`: what is kept of other windows may be of another version. Then the question that is shown when the answer comes,
 *   not when it was asked for, keeps its place: somebody may have gone on meanwhile.
 */
function fetchWindow(number, query, { sought = null, anew = false } = {}) {
  if (number < 0 || asked.has(number)) return;
  asked.add(number);
  const filter = { ...filterOf(query), sort: query.sort, offset: number * WINDOW, limit: WINDOW, ranking: part.get().ranking || null };
  const suspicious = sourceOf(query) === "suspicious";
  load(
    part,
    () => get(suspicious ? "/api/queue" : "/api/pictures", filter),
    (found) => {
      const shown = part.get().items[part.get().at];
      const place = anew ? (shown ? detailKey(shown) : null) : sought;
      /** @type {Record<number, Question>} */
      const items = anew ? {} : { ...part.get().items };
      found.items.forEach((/** @type {any} */ item, /** @type {number} */ index) => {
        const question = suspicious ? item : asQuestion(item, query.concept);
        items[found.offset + index] = question;
        know(question.id, question.concept, question.status, question.staged, found.revision);
      });
      const total = found.total;
      let at = Math.max(0, Math.min(part.get().at, total - 1));
      if (place) {
        const there = Object.entries(items).find(([, item]) => detailKey(item) === place);
        if (there) at = Number(there[0]);
      }
      if (anew) part.set({ details: {} });
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
    predicted_words: label?.predicted_words ?? "", status: label?.status ?? tile.status, staged: label?.staged ?? null, fields: tile.fields,
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
      () => get("/api/question", { id: question.id, concept: question.concept, ranking: part.get().ranking || null }),
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
  keepPlace(placeName(key), { at: place, question: item ? detailKey(item) : null, ranking: part.get().ranking, version: server().version });
  const words = new URLSearchParams({ ...query, at: String(place) });
  history.replaceState(null, "", `/queue?${words}`);
  if (!item) inSight(place, place + 1, query);
  else fetchDetail(place);
}

/** A question was answered; every few answers what follows is put in the order they suggest. @param {Record<string, string>} query */
export function answered(query) {
  if (sourceOf(query) !== "suspicious") return;
  const fresh = part.get().fresh + 1;
  part.set({ fresh: fresh >= LEARN_EVERY ? 0 : fresh });
  if (fresh >= LEARN_EVERY) learn(query);
}

/** Quietly: nothing that was seen moves, nor does the question that is shown or the next one. @param {Record<string, string>} query */
async function learn(query) {
  const { key, ranking } = part.get();
  const version = server().version;
  // The server learns from what it has stored.
  for (let tries = 0; waitingWrites().length > 0; tries += 1) {
    if (tries === 100) return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  for (let tries = 0; tries < 5; tries += 1) {
    const { items, at } = part.get();
    const seen = Array.from({ length: at + 2 }, (_, place) => items[place]);
    // A place that was jumped to has gaps before it: the order stays as it is.
    if (seen.slice(0, at + 1).some((one) => !one)) return;
    const body = { version, ranking, seen: seen.filter(Boolean).map((one) => ({ id: one.id, concept: one.concept })) };
    /** @type {import("../core/api.js").Learned | null} */
    const learnt = await post("/api/queue/learn", body).catch(() => null);
    if (!learnt || (!learnt.ready && !learnt.job)) return;
    if (learnt.job) {
      if ((await finish(learnt.job).catch(() => null))?.state !== "done") return;
      continue;
    }
    if (part.get().key !== key || server().version !== version) return;
    if (part.get().at > at + 1) continue;
    const kept = Object.fromEntries(Object.entries(part.get().items).filter(([place]) => Number(place) <= at + 1));
    asked.clear();
    part.set({ items: kept, ranking: learnt.ranking, moved: learnt.moved });
    fetchWindow(Math.floor(at / WINDOW), query);
    return;
  }
}
