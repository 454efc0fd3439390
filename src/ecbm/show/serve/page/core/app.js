// The state of the whole page and the few things every part of it does: answer, stage, move between versions, speak.
import { createStore } from "./store.js";
import { createWriter, get, post, Refusal } from "./server.js";
import { preferences } from "./preferences.js";
import { many } from "./words.js";

/** @typedef {import("./api.js").State} ServerState */
/** @typedef {import("./api.js").Job} Job */
/** @typedef {import("./api.js").Problem} Problem */
/** @typedef {import("./api.js").Tile["status"]} Status */
/** @typedef {{ status: Status, value: number | string | null, waiting: boolean, revision?: number }} Mark `revision`: the server's, once it has stored the answer */
/** @typedef {{ author: string | null, version: number, time: string, words: string, conflicts: number, total: number }} MovedOn */

/**
 * @typedef {object} State
 * @property {import("./router.js").Route} route
 * @property {ServerState | null} server
 * @property {"starting" | "there" | "gone"} connection
 * @property {Problem | null} refusal the server answers, but not us
 * @property {Problem | null} trouble something was not done; stays until it is put away
 * @property {MovedOn | null} moved somebody else moved the model on
 * @property {Record<string, Mark>} marks what was answered here, before and after the server knows
 * @property {Record<string, Job>} jobs
 * @property {string} said for screen readers
 * @property {string} done the last thing that was done, for the tray
 * @property {boolean} moving an undo or redo is on its way
 * @property {"" | "help" | "menu"} over what lies over the page
 * @property {{ theme: "auto" | "light" | "dark", letters: boolean }} preferences
 * @property {Record<string, any>} pages each page's own part
 */

/** @type {ReturnType<typeof createStore<State>>} */
export const store = createStore(/** @type {State} */ ({
  route: { page: "overview", query: {} }, server: null, connection: "starting", refusal: null, trouble: null, moved: null,
  marks: {}, jobs: {}, said: "", done: "", moving: false, over: "", preferences: preferences.read(), pages: {},
}));

/** The server's state; pages are drawn only once it is there. @returns {ServerState} */
export const server = () => /** @type {ServerState} */ (store.get().server);

/** Tell a screen reader. @param {string} words */
export const say = (words) => store.set({ said: words });

/** "picture" or "record", for words about what the data is made of. */
export const noun = () => (store.get().server?.kind === "table" ? "record" : "picture");

/** @param {number} number */
export const things = (number) => many(number, noun());

/**
 * A page's own part of the state.
 * @template {object} Part
 * @param {string} name
 * @param {Part} initial
 */
export function slice(name, initial) {
  return {
    name,
    /** @returns {Part} */
    get: () => store.get().pages[name] ?? initial,
    /** @param {Partial<Part>} change */
    set(change) {
      store.set((state) => ({ pages: { ...state.pages, [name]: { ...(state.pages[name] ?? initial), ...change } } }));
    },
    reset() {
      store.set((state) => ({ pages: { ...state.pages, [name]: initial } }));
    },
  };
}

/** @type {Map<string, number>} */
const turns = new Map();

/**
 * Fetch something for a page. Of two answers the one to the later question counts; a server that is still reading the
 * model is asked again; one that is gone is asked again when it is back (see main.js).
 * @template Result
 * @param {{ name: string, set: (change: any) => void }} part
 * @param {() => Promise<Result>} task
 * @param {(result: Result) => void} use
 * @param {string} [what] to keep two things apart that one page loads
 */
export async function load(part, task, use, what = "") {
  const key = `${part.name} ${what}`;
  const turn = (turns.get(key) ?? 0) + 1;
  turns.set(key, turn);
  part.set({ [`loading${what}`]: Date.now(), [`problem${what}`]: null });
  try {
    const result = await task();
    if (turns.get(key) !== turn) return;
    part.set({ [`loading${what}`]: 0 });
    use(result);
  } catch (failure) {
    if (!(failure instanceof Refusal)) throw failure;
    if (turns.get(key) !== turn) return;
    if (failure.status === 503) {
      setTimeout(() => turns.get(key) === turn && load(part, task, use, what), 700);
      return;
    }
    if (failure.gone) store.set({ connection: "gone" });
    part.set({ [`loading${what}`]: 0, [`problem${what}`]: failure.problem });
  }
}

/** @param {string} id @param {string | null} concept */
export const markKey = (id, concept) => `${id}\n${concept ?? ""}`;

/**
 * What is known of an answer: what was done here first, then what the server said.
 * @param {string} id
 * @param {string | null} concept
 * @param {Status} status
 * @param {number | string | null} [value]
 * @returns {Mark}
 */
export function mark(id, concept, status, value = null) {
  return store.get().marks[markKey(id, concept)] ?? { status, value, waiting: false };
}

/** @param {string} key @param {Mark | null} change */
function setMark(key, change) {
  store.set((state) => {
    const marks = { ...state.marks };
    if (change) marks[key] = change;
    else delete marks[key];
    return { marks };
  });
}

const writer = createWriter({
  name: "ecbm.unsent",
  workspace: () => store.get().server?.workspace ?? null,
  changed: (waiting) => {
    const keys = new Set(waiting.map((write) => write.key));
    store.set((state) => ({
      marks: Object.fromEntries(
        Object.entries(state.marks).map(([key, one]) => [key, one.waiting && !keys.has(key) ? { ...one, waiting: false } : one]),
      ),
    }));
  },
  stored: (write, answer) => {
    for (const item of answer.items ?? []) {
      const key = markKey(item.id, item.concept);
      const now = store.get().marks[key];
      if (key === write.key && now) setMark(key, { ...now, status: item.status, waiting: false, revision: answer.revision });
    }
    const kept = store.get().marks[write.key];
    if (kept) setMark(write.key, { ...kept, revision: answer.revision });
    const counts = answer.staged ?? answer.counts;
    store.set((state) => ({
      connection: "there",
      server: state.server && { ...state.server, staged: counts, revision: answer.revision, unsure: answer.unsure ?? state.server.unsure },
    }));
  },
  refused: (write, refusal) => {
    const now = store.get().marks[write.key];
    if (refusal.gone || refusal.status >= 500) {
      if (refusal.gone) store.set({ connection: "gone" });
      else if (refusal.problem.kind === "full_disk") store.set({ trouble: refusal.problem });
      if (now) setMark(write.key, { ...now, waiting: true });
    } else {
      setMark(write.key, null);
      store.set({ trouble: refusal.problem });
    }
  },
});

/** The server is there again: send what waits. */
export const sendWaiting = () => writer.again();
export const waitingWrites = () => writer.waiting();

/**
 * Answer a question: seen at once, stored at once after.
 * @param {string} id
 * @param {string | null} concept null: the class
 * @param {import("./api.js").Answer["answer"]} answer
 * @param {Status} status what it will be: staged, kept or unsure
 * @param {number | string | null} [value]
 */
export function answer(id, concept, answer, status, value = null) {
  const key = markKey(id, concept);
  const shown = answer === "present" ? 1 : answer === "absent" ? 0 : value;
  count(key, id, concept, status);
  setMark(key, { status, value: status === "staged" ? shown : null, waiting: false });
  /** @type {any} */
  const body = { id, concept, answer };
  if (answer === "value") body.value = value;
  writer.add({ path: "/api/answers", key, workspace: server().workspace, body: { answers: [body] } });
}

/** @param {string} id @param {string | null} concept */
export function takeBack(id, concept) {
  const key = markKey(id, concept);
  count(key, id, concept, "plain");
  setMark(key, { status: "plain", value: null, waiting: false });
  writer.add({ path: "/api/staged/take-back", key, workspace: server().workspace, body: { questions: [{ id, concept }] } });
}

/** The counter changes with the answer, not with the reply. @param {string} key @param {string} _id @param {string | null} _concept @param {Status} status */
function count(key, _id, _concept, status) {
  const before = store.get().marks[key]?.status;
  const change = Number(status === "staged") - Number(before === "staged");
  if (change === 0) return;
  store.set((state) => {
    if (!state.server) return {};
    const staged = state.server.staged;
    return { server: { ...state.server, staged: { ...staged, total: Math.max(0, staged.total + change), labels: Math.max(0, staged.labels + change) } } };
  });
}

/**
 * What the server says of a label the page is about to show: so that the counter knows where it starts. An answer that was
 * stored after the server had looked (at `revision`) is newer than what it says.
 * @param {string} id
 * @param {string | null} concept
 * @param {Status} status
 * @param {number | string | null} value
 * @param {number} revision
 */
export function know(id, concept, status, value, revision) {
  const key = markKey(id, concept);
  const now = store.get().marks[key];
  if (now?.waiting || (now?.revision ?? 0) > revision || waitingWrites().some((write) => write.key === key)) return;
  if (!now && status === "plain") return;
  if (now && now.status === status && now.value === value) return;
  setMark(key, { status, value, waiting: false });
}

/** Marks are of one version: after a commit or an undo, what the server says counts. */
export function forgetMarks() {
  const keys = new Set(waitingWrites().map((write) => write.key));
  store.set((state) => ({ marks: Object.fromEntries(Object.entries(state.marks).filter(([key]) => keys.has(key))) }));
}

/**
 * Stage something other than a label: it waits for the server, and says so if it is refused.
 * @param {any} item
 * @returns {Promise<import("./api.js").Staged | null>}
 */
export async function stage(item) {
  return change(() => post("/api/staged", { item }));
}

/**
 * A change whose refusal is shown to the person.
 * @template Result
 * @param {() => Promise<Result>} task
 * @returns {Promise<Result | null>}
 */
export async function change(task) {
  try {
    const result = /** @type {any} */ (await task());
    const counts = result?.counts ?? result?.staged;
    if (counts && typeof counts.total === "number") {
      store.set((state) => ({ server: state.server && { ...state.server, staged: counts, revision: result.revision } }));
    }
    return result;
  } catch (failure) {
    if (!(failure instanceof Refusal)) throw failure;
    if (failure.gone) store.set({ connection: "gone" });
    else store.set({ trouble: failure.problem });
    return null;
  }
}

/** An answer may have been stored while the state was on its way: its counts are the newer ones. @param {ServerState} asked */
function newest(asked) {
  const now = store.get().server;
  if (!now || now.version !== asked.version || now.revision <= asked.revision) return asked;
  return { ...asked, revision: now.revision, staged: now.staged, unsure: now.unsure };
}

/** Ask the server again who, which version and what is staged. */
export async function refreshState() {
  try {
    const asked = await get("/api/state");
    store.set({ server: newest(asked), connection: "there", refusal: null });
  } catch (failure) {
    if (!(failure instanceof Refusal)) throw failure;
    if (failure.gone) store.set({ connection: "gone" });
    else if (failure.status !== 503) store.set({ refusal: failure.problem });
  }
}

/** @type {number[]} */
const ours = [];

/** This browser made the version: nobody has to be told. @param {number} version */
export const madeHere = (version) => void ours.push(version);
/** @param {number} version */
export const wasMadeHere = (version) => ours.includes(version);

/**
 * Undo or redo a version: one click, one key. The page waits; never is a version shown that the server has not confirmed.
 * @param {"undo" | "redo"} way
 */
export async function move(way) {
  const state = store.get();
  if (!state.server || state.moving || !(way === "undo" ? state.server.can_undo : state.server.can_redo)) return;
  store.set({ moving: true, trouble: null });
  const moved = /** @type {import("./api.js").Moved | null} */ (await change(() => post(`/api/${way}`, { version: server().version })));
  if (moved) {
    madeHere(moved.version);
    forgetMarks();
    await refreshState();
    store.set({ done: moved.words, said: moved.words });
  }
  store.set({ moving: false });
}
