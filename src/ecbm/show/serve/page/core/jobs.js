// What takes time is a job of the server: it names its step, can be cancelled until the write, and outlives this page.
import { get, post, Refusal } from "./server.js";
import { store } from "./app.js";

/** @typedef {import("./api.js").Job} Job */

/** @param {Job | null | undefined} job */
export const running = (job) => Boolean(job && ["waiting", "running", "writing"].includes(job.state));

/** @param {Job} job */
function keep(job) {
  store.set((state) => ({ jobs: { ...state.jobs, [job.id]: job } }));
  return job;
}

/**
 * Start a job and wait for its end; progress is drawn from the store meanwhile.
 * @param {string} path
 * @param {any} body
 * @param {(job: Job) => void} started
 * @param {number} [wait] seconds in which a short job is one round trip
 * @returns {Promise<Job>}
 */
export async function run(path, body, started, wait = 0) {
  const job = keep(await post(wait ? `${path}?wait=${wait}` : path, body));
  started(job);
  return finish(job.id);
}

/**
 * Wait for the end of a job: events tell of it, and where they do not come through, asking does.
 * @param {string} id
 * @returns {Promise<Job>}
 */
export async function finish(id) {
  for (let pause = 150; ; pause = Math.min(2000, pause * 1.5)) {
    const known = store.get().jobs[id];
    if (known && !running(known)) return known;
    await new Promise((resolve) => {
      const stop = store.subscribe((state, before) => {
        if (state.jobs[id] !== before.jobs[id] && !running(state.jobs[id])) resolve(null);
      });
      setTimeout(() => {
        stop();
        resolve(null);
      }, pause);
    });
    if (running(store.get().jobs[id])) {
      try {
        keep(await get(`/api/jobs/${id}`));
      } catch (failure) {
        if (!(failure instanceof Refusal)) throw failure;
        // A server that is gone may come back with the job; one that does not know it any more has lost it.
        if (failure.status === 404) throw failure;
      }
    }
  }
}

/** @param {string} id */
export async function cancel(id) {
  try {
    keep(await post(`/api/jobs/${id}/cancel`));
  } catch (failure) {
    if (!(failure instanceof Refusal)) throw failure;
  }
}
