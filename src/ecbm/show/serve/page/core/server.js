// The one module that talks to the server: questions (get), changes (post), events (server-sent), and answers that must
// not be lost. An answer is written to the browser's own storage first, then sent until the server has stored it.
import { written } from "./router.js";

/** @typedef {import("./api.js").Problem} Problem */
/** @typedef {import("./api.js").Answer} Answer */
/** @typedef {import("./api.js").Answered} Answered */
/** @typedef {import("./api.js").Event} ServerEvent */

/** A request that did not come through: `status` 0 where nobody answered. */
export class Refusal extends Error {
  /**
   * @param {number} status
   * @param {Problem} problem
   */
  constructor(status, problem) {
    super(problem.what);
    this.status = status;
    this.problem = problem;
  }

  get gone() {
    return this.status === 0;
  }
}

/**
 * @param {string} path
 * @param {import("./router.js").Query | string} [query]
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export function get(path, query = {}, signal) {
  const words = typeof query === "string" ? query : written(query);
  return request(path + (words ? `?${words}` : ""), { signal });
}

/**
 * @param {string} path
 * @param {any} body
 * @param {string} [method]
 * @returns {Promise<any>}
 */
export function post(path, body = {}, method = "POST") {
  return request(path, { method, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
}

/**
 * @param {string} path
 * @param {Blob} file
 * @returns {Promise<any>}
 */
export function upload(path, file) {
  return request(path, { method: "POST", headers: { "Content-Type": "text/csv" }, body: file });
}

/**
 * @param {string} path
 * @param {RequestInit} options
 */
async function request(path, options) {
  let response;
  try {
    response = await fetch(path, { ...options, credentials: "same-origin", cache: "no-store" });
  } catch (failure) {
    if (options.signal?.aborted) throw failure;
    throw new Refusal(0, { kind: "gone", what: "The workbench does not answer.", todo: "" });
  }
  if (response.ok) return response.json();
  let problem = /** @type {Problem} */ ({ kind: "input", what: `The server answered ${response.status}.`, todo: "" });
  try {
    const body = await response.json();
    if (typeof body?.what === "string") problem = body;
  } catch {
    // No words came with it; the status has to do.
  }
  throw new Refusal(response.status, problem);
}

/**
 * Listen to what happens elsewhere. The browser reconnects by itself; a stream that was refused is opened again.
 * @param {(event: ServerEvent) => void} heard
 * @param {(connected: boolean) => void} connection
 */
export function listenToEvents(heard, connection) {
  /** @type {EventSource} */
  let source;
  const open = () => {
    source = new EventSource("/api/events");
    for (const kind of ["hello", "version", "staged", "job", "ready", "suspicious", "loading"]) {
      source.addEventListener(kind, (event) => {
        connection(true);
        heard(JSON.parse(/** @type {MessageEvent} */ (event).data));
      });
    }
    source.onopen = () => connection(true);
    source.onerror = () => {
      connection(false);
      if (source.readyState === EventSource.CLOSED) setTimeout(open, 2000);
    };
  };
  open();
  window.addEventListener("pagehide", () => source.close());
  window.addEventListener("pageshow", (event) => event.persisted && open());
}

/** @typedef {{ path: string, body: any, key: string, workspace: string }} Write */

/**
 * Writes in order, kept in the browser until the server has them.
 * @param {object} options
 * @param {string} options.name where in the browser's storage
 * @param {(writes: Write[]) => void} options.changed the writes that still wait
 * @param {(write: Write, answer: any) => void} options.stored
 * @param {(write: Write, refusal: Refusal) => void} options.refused
 * @param {() => string | null} options.workspace which one answers here: another one's answers wait for it
 */
export function createWriter({ name, changed, stored, refused, workspace }) {
  /** @type {Write[]} */
  let waiting = read();
  let sending = false;
  let pause = 1000;
  /** @type {number | undefined} */
  let timer;

  function read() {
    try {
      return JSON.parse(localStorage.getItem(name) ?? "[]");
    } catch {
      return [];
    }
  }

  function keep() {
    try {
      localStorage.setItem(name, JSON.stringify(waiting));
    } catch {
      // A full or forbidden storage: what waits is still in memory and is still sent.
    }
    changed(waiting);
  }

  const next = () => waiting.find((write) => write.workspace === workspace());

  /** @param {Write} write */
  function drop(write) {
    waiting = waiting.filter((one) => one !== write);
  }

  async function send() {
    if (sending) return;
    sending = true;
    for (let write = next(); write; write = next()) {
      try {
        const answer = await post(write.path, write.body);
        drop(write);
        pause = 1000;
        keep();
        stored(write, answer);
      } catch (failure) {
        if (!(failure instanceof Refusal)) throw failure;
        const later = failure.gone || [401, 429, 500, 502, 503, 504, 507].includes(failure.status) || failure.problem.kind === "busy";
        if (!later) {
          drop(write);
          keep();
        }
        refused(write, failure);
        if (later) {
          timer = window.setTimeout(() => send(), pause);
          pause = Math.min(2 * pause, 10000);
          break;
        }
      }
    }
    sending = false;
  }

  return {
    /**
     * A later write with the same key replaces one that was not sent yet.
     * @param {Write} write
     */
    add(write) {
      const sent = sending ? next() : null;
      waiting = [...waiting.filter((one) => one.key !== write.key || one === sent), write];
      keep();
      send();
    },
    /** Try at once: the server is back. */
    again() {
      window.clearTimeout(timer);
      pause = 1000;
      send();
    },
    waiting: () => waiting,
  };
}
