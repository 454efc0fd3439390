// What stands in place of a page while there is nothing to draw it from: starting, refused, no model yet.
import { h } from "../core/dom.js";
import { change, server, slice, store } from "../core/app.js";
import { post } from "../core/server.js";
import { button, empty, shapes, trouble, working } from "./marks.js";
import { things } from "../core/app.js";

const part = slice("first", { job: /** @type {string | null} */ (null) });

async function train() {
  const job = await change(() => post("/api/train", {}));
  if (job) {
    part.set({ job: job.id });
    store.set((state) => ({ jobs: { ...state.jobs, [job.id]: job } }));
  }
}

/**
 * @param {import("./frame.js").Page} page
 * @returns {import("../core/dom.js").Child} null: the page itself can be drawn
 */
export function first(page) {
  const { server: state, refusal, connection, jobs } = store.get();
  if (refusal) return h("div", { class: "page centred" }, trouble(refusal.what, refusal.todo));
  if (!state) return h("div", { class: "page" }, connection === "gone" ? null : shapes(6));
  if (!state.ready) {
    const loading = state.loading;
    return h(
      "div",
      { class: "page centred" },
      working({
        title: `Opening ${state.workspace}`, step: loading ? loading.step : "reading the model",
        share: loading && loading.total ? loading.done / loading.total : null, seconds: loading?.seconds ?? 0,
      }),
    );
  }
  if (state.trained || page.needsModel === false) return null;
  const job = part.get().job ? jobs[part.get().job ?? ""] : Object.values(jobs).find((one) => one.kind === "train" && ["waiting", "running", "writing"].includes(one.state));
  if (job && ["waiting", "running", "writing"].includes(job.state)) {
    const { step, done, total, seconds } = job.progress;
    return h("div", { class: "page centred" }, working({
      title: "Training the first model", step, share: total ? done / total : null, seconds,
      cancel: job.can_cancel ? () => void change(() => post(`/api/jobs/${job.id}/cancel`)) : null,
    }));
  }
  return h(
    "div",
    { class: "page centred" },
    job?.problem ? trouble(job.problem.what, job.problem.todo) : null,
    empty("There is data, but no model.", `${things(server().samples)} are here. Train a model, then look for what it gets wrong.`, button("Train one", { kind: "ink", onclick: train })),
  );
}
