// Stage → preview → commit: what is fetched and done. Nothing here changes the model but `commit`.
import { get, post, Refusal } from "../core/server.js";
import { cancel, run } from "../core/jobs.js";
import { change, forgetMarks, load, madeHere, refreshState, say, server, slice, store } from "../core/app.js";

/** @typedef {import("../core/api.js").Preview} Preview */
/** @typedef {import("../core/api.js").Staged} Staged */
/** @typedef {import("../core/api.js").Comparison} Comparison */
/** @typedef {import("../core/api.js").Problem} Problem */

export const part = slice("preview", {
  staged: /** @type {Staged | null} */ (null), view: /** @type {Preview | null} */ (null), method: /** @type {"exact" | "auto" | "retrain"} */ ("exact"), budget: 0.05,
  job: /** @type {string | null} */ (null), doing: /** @type {"" | "preview" | "commit"} */ (""), problem: /** @type {Problem | null} */ (null),
  reason: "", done: /** @type {Comparison | null} */ (null), loading: 0, at: 0, asked: 0,
});

export function enter() {
  part.set({ done: null, problem: null });
  refresh();
}

/** What is staged, and its preview if it is of another revision or version. */
export function refresh() {
  if (part.get().doing === "commit" || part.get().done) return;
  load(part, () => get("/api/staged"), (staged) => {
    part.set({ staged });
    const { view, doing } = part.get();
    const current = view && view.version === server().version && view.revision === staged.revision && view.method === part.get().method;
    if (staged.counts.total > 0 && !current && doing === "") preview();
    if (staged.counts.total === 0) part.set({ view: null });
  }, " staged");
}

let turn = 0;

/** Compute the preview: a small one is one round trip; a long one must be known at once, to be cancelled. */
export async function preview() {
  const mine = (turn += 1);
  const { method, budget, job: before, doing } = part.get();
  if (before && doing === "preview") cancel(before);
  part.set({ doing: "preview", problem: null, asked: Date.now() });
  try {
    const job = await run("/api/previews", { version: server().version, method, budget }, (started) => turn === mine && part.set({ job: started.id }), method === "exact" ? 2 : 0);
    if (turn !== mine) return;
    if (job.state === "done" && job.result) {
      const view = await get(job.result);
      if (turn === mine) {
        part.set({ view, doing: "", job: null });
        say(view.words);
      }
    } else {
      part.set({ doing: "", job: null, problem: job.problem });
    }
  } catch (failure) {
    if (!(failure instanceof Refusal)) throw failure;
    if (turn !== mine) return;
    part.set({ doing: "", job: null });
    await refused(failure);
  }
}

/** @param {Refusal} failure */
async function refused(failure) {
  if (failure.gone) {
    store.set({ connection: "gone" });
  } else if (failure.problem.kind === "moved_on") {
    await movedOn(/** @type {any} */ (failure.problem));
  } else {
    part.set({ problem: failure.problem });
  }
}

/** Somebody was faster: say so, show the preview on the new version. @param {import("../core/api.js").MovedOn} moved */
async function movedOn(moved) {
  await refreshState();
  store.set({ moved: { author: moved.author, version: moved.version, time: moved.time, words: moved.words, conflicts: moved.of - moved.fits, total: moved.of } });
  part.set({ view: null });
  refresh();
}

/** Commit what is staged. The version is shown as the current one when the server says so, not before. */
export async function commit() {
  const { reason, method, budget, doing, view } = part.get();
  if (!reason.trim() || doing || !view) return;
  part.set({ doing: "commit", problem: null, asked: Date.now() });
  try {
    const job = await run("/api/commits", { version: server().version, reason: reason.trim(), method, budget }, (started) => part.set({ job: started.id }), method === "exact" ? 1 : 0);
    if (job.state === "done") {
      if (job.version !== null) madeHere(job.version);
      forgetMarks();
      await refreshState();
      const done = job.result ? await get(job.result) : null;
      part.set({ doing: "", job: null, view: null, staged: null, reason: "", done });
      store.set({ moved: null, done: `Committed version ${server().version}`, said: `Committed version ${server().version}. ${done?.words ?? ""}` });
    } else {
      part.set({ doing: "", job: null, problem: job.state === "cancelled" ? null : job.problem });
      if (job.problem?.kind === "moved_on") await movedOn(/** @type {any} */ (job.problem));
    }
  } catch (failure) {
    if (!(failure instanceof Refusal)) throw failure;
    part.set({ doing: "", job: null });
    await refused(failure);
  }
}

/** @param {any} what items, group or everything */
export async function takeOut(what) {
  const staged = /** @type {Staged | null} */ (await change(() => post("/api/staged/take-back", what)));
  if (!staged) return;
  forgetMarks();
  part.set({ staged });
  if (staged.counts.total === 0) part.set({ view: null });
  else preview();
}

/** @param {"exact" | "auto" | "retrain"} method @param {number | null} budget */
export function choose(method, budget) {
  part.set({ method, budget: budget ?? part.get().budget });
  preview();
}
