// Starts the page: one store, one draw per frame, one stream of events, one table of pages.
import { draw } from "./core/dom.js";
import { listen } from "./core/keys.js";
import { address, follow, go, parse } from "./core/router.js";
import { get, listenToEvents, Refusal } from "./core/server.js";
import { forgetMarks, move, refreshState, say, sendWaiting, store, wasMadeHere } from "./core/app.js";
import { preferences } from "./core/preferences.js";
import { bare, frame } from "./components/frame.js";
import { closeOver } from "./components/help.js";
import { first } from "./components/first.js";
import { overview } from "./overview/overview.js";
import { queue } from "./queue/queue.js";
import { pictures } from "./pictures/pictures.js";
import { sample } from "./picture/picture.js";
import { concepts } from "./concepts/concepts.js";
import { preview } from "./preview/preview.js";
import { history as versions } from "./history/history.js";
import { forget } from "./forget/forget.js";
import { audit } from "./audit/audit.js";
import { sheet } from "./components/sheet.js";

/** @type {Record<string, import("./components/frame.js").Page>} */
const PAGES = Object.fromEntries([overview, queue, pictures, sample, concepts, preview, versions, forget, audit, sheet].map((page) => [page.name, page]));

const root = /** @type {HTMLElement} */ (document.getElementById("app"));
const live = /** @type {HTMLElement} */ (document.getElementById("live"));

const current = () => PAGES[store.get().route.page] ?? overview;

/** @returns {import("./core/keys.js").Key[]} */
function keys() {
  const { over, server } = store.get();
  if (!server) return [];
  if (over) return [{ key: "Escape", words: "close", run: closeOver, infield: true }, { key: "?", words: "close", run: closeOver }];
  return shownKeys();
}

/** The keys of this page and of every page, for the tray and the overlay. @returns {import("./core/keys.js").Key[]} */
function shownKeys() {
  const page = current();
  return [
    ...(page.keys?.() ?? []),
    { key: "p", words: "preview", run: () => go(address("preview")), tray: page.name === "overview" || page.name === "queue" },
    { key: "/", words: "find", run: () => document.getElementById("find")?.focus() },
    { key: "z", ctrl: true, words: "undo a version", run: () => void move("undo"), tray: page.name === "history" },
    { key: "y", ctrl: true, words: "redo a version", run: () => void move("redo"), tray: page.name === "history" },
    { key: "?", words: "all keys", run: () => store.set({ over: "help" }), tray: true },
    { key: "Escape", words: "out", run: leaveField, infield: true },
  ];
}

function leaveField() {
  if (document.activeElement instanceof HTMLElement) document.activeElement.blur();
}

let asked = false;
function schedule() {
  if (asked) return;
  asked = true;
  const next = document.hidden ? (/** @type {() => void} */ task) => setTimeout(task, 50) : requestAnimationFrame;
  next(() => {
    asked = false;
    drawAll();
  });
}

function drawAll() {
  const state = store.get();
  const page = current();
  const ready = first(page);
  draw(root, state.server ? frame(page, ready ?? page.draw(), shownKeys()) : bare(ready));
  if (live.textContent !== state.said) live.textContent = state.said;
  const title = `${state.server ? page.title() : "Opening"} · ${state.server?.workspace ?? "Workbench"}`;
  if (document.title !== title) document.title = title;
}

/** @param {import("./core/router.js").Route} route */
function arrived(route) {
  const before = store.get().route.page;
  if (before !== route.page) PAGES[before]?.leave?.();
  store.set({ route, over: "", done: before === route.page ? store.get().done : "" });
  if (store.get().server) current().enter?.(route);
  if (before !== route.page) say(current().title());
}

/** @param {import("./core/api.js").Event} event */
async function heard(event) {
  if (event.kind === "job" && event.job) {
    const job = event.job;
    store.set((state) => ({ jobs: { ...state.jobs, [job.id]: job } }));
    return;
  }
  const known = store.get().server;
  const newer = event.version !== null && event.version !== known?.version;
  if (!newer && event.revision !== null && event.revision === known?.revision && !["ready", "suspicious", "hello"].includes(event.kind)) return;
  await refreshState();
  const now = store.get().server;
  if (!now) return;
  if (known && known.version !== now.version) {
    forgetMarks();
    if (!wasMadeHere(now.version) && known.trained) {
      store.set({ moved: { author: event.by ?? now.author, version: now.version, time: now.time, words: event.words, conflicts: now.staged.conflicts, total: now.staged.total + now.staged.conflicts } });
    }
  }
  // A greeting alone is no news: the page was fetched just before it.
  if (event.kind !== "hello" || newer || known?.revision !== now.revision || known?.suspicious !== now.suspicious) refreshPage();
}

let refreshing = 0;
/** Several events may come at once; the page asks again once. */
function refreshPage() {
  window.clearTimeout(refreshing);
  refreshing = window.setTimeout(() => current().refresh?.(), 60);
}

let lost = 0;
/** @param {boolean} connected */
function connection(connected) {
  window.clearTimeout(lost);
  if (connected) {
    const was = store.get().connection;
    store.set({ connection: "there" });
    if (was === "gone") back();
  } else {
    lost = window.setTimeout(() => store.set({ connection: "gone" }), 1200);
  }
}

async function back() {
  await refreshState();
  sendWaiting();
  refreshPage();
}

/** The stream alone may take long to notice that the server is back: ask every two seconds while it is gone. */
async function look() {
  // A server that was started again may not know this browser until its new address was opened in another tab.
  if (store.get().connection === "gone" || store.get().refusal) {
    try {
      const server = await get("/api/state");
      store.set({ server, connection: "there", refusal: null });
      sendWaiting();
      refreshPage();
    } catch (failure) {
      if (failure instanceof Refusal && !failure.gone && failure.status !== 503) store.set({ refusal: failure.problem, connection: "there" });
    }
  }
  setTimeout(look, 2000);
}

/** While the model is being read, the state is asked for until it is ready. */
async function start() {
  preferences.apply(store.get().preferences);
  store.set({ route: parse(location) });
  store.subscribe(schedule);
  follow(arrived, (name) => name in PAGES);
  listen(keys, goto, () => store.get().preferences.letters);
  schedule();
  await refreshState();
  while (!store.get().server?.ready && !store.get().refusal) {
    await new Promise((resolve) => setTimeout(resolve, 400));
    await refreshState();
  }
  current().enter?.(store.get().route);
  sendWaiting();
  listenToEvents(heard, connection);
  look();
}

const goto = () => ({
  o: () => go(address("overview")), q: () => go(address("queue")), p: () => go(address("pictures")),
  c: () => go(address("concepts")), h: () => go(address("history")),
});

start();
