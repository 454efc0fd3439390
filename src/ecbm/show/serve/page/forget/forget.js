// Forget somebody: a separate, quiet place. Which records, what is destroyed, typed words, the audit, a certificate to print.
import { h } from "../core/dom.js";
import { icon } from "../core/icons.js";
import { address } from "../core/router.js";
import { get, post, Refusal } from "../core/server.js";
import { cancel, run, running } from "../core/jobs.js";
import { capital, count, seconds, when } from "../core/words.js";
import { forgetMarks, load, madeHere, noun, refreshState, say, server, slice, store, things } from "../core/app.js";
import { button, progressBar, trouble } from "../components/marks.js";
import { certificateBox } from "../components/changes.js";
import { tile } from "../components/tile.js";

/** @typedef {import("../core/api.js").ForgetPlan} Plan */
/** @typedef {import("../core/api.js").ForgetCertificate} Certificate */
/** @typedef {import("../core/api.js").Problem} Problem */

const NOTHING = {
  text: "", plan: /** @type {Plan | null} */ (null), method: /** @type {"exact" | "retrain"} */ ("retrain"), reason: "", typed: "", running: false,
  job: /** @type {string | null} */ (null), certificate: /** @type {Certificate | null} */ (null), problem: /** @type {Problem | null} */ (null),
};
const part = slice("forget", NOTHING);

/** Ids as people paste them: by commas, spaces or lines. @param {string} text */
const idsOf = (text) => [...new Set(text.split(/[\s,;]+/).filter(Boolean))];

let later = 0;
/** @param {string} text */
function write(text) {
  part.set({ text, typed: "" });
  clearTimeout(later);
  later = window.setTimeout(() => plan(text), 250);
}

/** @param {string} text */
function plan(text) {
  const ids = idsOf(text);
  if (ids.length === 0) {
    part.set({ plan: null, problem: null });
    return;
  }
  load(part, () => post("/api/forget/plan", { ids }), (found) => {
    const method = found.methods.find((/** @type {any} */ one) => one.complete)?.method ?? found.methods[0]?.method ?? "retrain";
    part.set({ plan: found, method });
    say(`${found.samples.length} found`);
  });
}

const ready = () => {
  const { plan: made, typed, reason, running: busy } = part.get();
  return Boolean(made && made.samples.length && made.unknown.length === 0 && typed.trim() === made.confirm && reason.trim() && !busy);
};

/** @param {Event} event */
async function erase(event) {
  event.preventDefault();
  const { plan: made, typed, reason, method } = part.get();
  if (!ready() || !made) return;
  part.set({ running: true, problem: null });
  try {
    const job = await run("/api/forget", { version: made.version, ids: made.samples.map((one) => one.id), method, reason: reason.trim(), confirm: typed.trim() }, (started) => part.set({ job: started.id }));
    if (job.state === "done" && job.result) {
      if (job.version !== null) madeHere(job.version);
      const certificate = await get(job.result);
      forgetMarks();
      part.set({ ...NOTHING, certificate });
      await refreshState();
      say("Erased. The certificate is below.");
    } else {
      part.set({ running: false, job: null, problem: job.state === "cancelled" ? { kind: "input", what: "Cancelled: nothing was erased.", todo: "" } : job.problem });
    }
  } catch (failure) {
    if (!(failure instanceof Refusal)) throw failure;
    if (failure.gone) store.set({ connection: "gone" });
    part.set({ running: false, job: null, problem: failure.problem });
    if (failure.problem.kind === "moved_on") {
      await refreshState();
      plan(part.get().text);
    }
  }
}

/** @param {number} number @param {string} title @param {...import("../core/dom.js").Child} inside */
const stepBox = (number, title, ...inside) => h("section", { class: "forget-step", key: title }, h("span", { class: "step-number", "aria-hidden": "true" }, String(number)), h("div", null, h("h2", null, title), inside));

/** @param {Plan} made */
function foundRecords(made) {
  return h(
    "div",
    { class: "forget-found" },
    made.samples.slice(0, 12).map((one) => h("div", { key: one.id, class: "found-record" }, one.thumb ? tile({ id: one.id, source: one.thumb, words: one.id }) : null, h("div", null, h("p", { class: "dense mono" }, one.id), h("p", { class: "meta" }, [one.split ? { train: "training", val: "validation", test: "test" }[one.split] : "removed earlier, still known", one.label].filter(Boolean).join(", "))))),
    made.samples.length > 12 ? h("p", { class: "meta" }, `and ${count(made.samples.length - 12)} more`) : null,
    made.unknown.length ? h("p", { class: "dense", role: "alert" }, icon("warning", 14), ` Not known here: ${made.unknown.slice(0, 5).join(", ")}${made.unknown.length > 5 ? " …" : ""}. Correct or take them out to go on.`) : null,
  );
}

/** @param {Plan} made */
function steps(made) {
  const { method, reason, typed, running: busy, job } = part.get();
  const now = job ? store.get().jobs[job] : null;
  return [
    stepBox(2, "What will be destroyed", h("ul", { class: "destroyed dense" }, made.destroyed.map((one) => h("li", { key: one.words }, icon("close", 12), h("span", null, one.words), h("span", { class: "soft number" }, one.amount)))), made.staged_lost ? h("p", { class: "meta" }, `Also ${count(made.staged_lost)} staged changes and answers about them, of anybody.`) : null),
    stepBox(3, "How the model forgets", h("fieldset", { class: "forget-methods", disabled: busy }, h("legend", { class: "unseen" }, "How the model forgets"), made.methods.map((one) => h("label", { key: one.method, class: "dense" }, h("input", { type: "radio", name: "method", value: one.method, checked: method === one.method, onchange: () => part.set({ method: one.method }) }), h("span", null, one.complete ? h("b", null, one.words) : one.words, one.seconds !== null ? h("span", { class: "soft" }, ` About ${seconds(one.seconds)}.`) : null))))),
    stepBox(
      4, "Confirm",
      h(
        "form",
        { class: "forget-confirm", onsubmit: erase },
        h("label", { class: "labelled" }, h("span", null, "Reason, without a name or an id"), h("input", { id: "forget-reason", class: "field", value: reason, disabled: busy, maxlength: 500, autocomplete: "off", oninput: (/** @type {Event} */ event) => part.set({ reason: /** @type {HTMLInputElement} */ (event.target).value }) })),
        h("label", { class: "labelled" }, h("span", null, "Type ", h("b", null, made.confirm)), h("input", { id: "forget-typed", class: "field", value: typed, disabled: busy, autocomplete: "off", spellcheck: "false", oninput: (/** @type {Event} */ event) => part.set({ typed: /** @type {HTMLInputElement} */ (event.target).value }) })),
        busy
          ? h("div", { class: "forget-running" }, progressBar(now && now.progress.total ? now.progress.done / now.progress.total : null), h("p", { class: "dense soft", role: "status" }, now?.progress.step ?? "starting"), now?.can_cancel && running(now) ? button("Cancel", { cap: "Esc", onclick: () => cancel(now.id) }) : null)
          : h("div", { class: "actions" }, button("Erase for good", { type: "submit", kind: "ink", disabled: !ready() }), button("Cancel", { onclick: () => part.reset() }), h("span", { class: "meta" }, ready() ? "There is no way back." : "The button wakes up when the words and a reason are complete.")),
      ),
    ),
  ];
}

/** @param {Plan | null} made */
function consequences(made) {
  return [
    h("section", null, h("h2", null, "What stays"), h("ul", { class: "consequences dense" }, (made?.stays ?? ["A version made without them, as the only one", "That an erasure happened: when, by whom, why, how many. Not whose.", "The chain of the history, which can still be verified"]).map((words) => h("li", { key: words }, icon("check", 14), words)))),
    h("hr", { class: "line" }),
    h("section", null, h("h2", null, "What this cannot reach"), h("ul", { class: "consequences dense" }, (made?.not_reached ?? ["The files the data came from", "Copies and exports outside this folder, backups", "What the disk itself may keep"]).map((words) => h("li", { key: words }, icon("warning", 14), capital(words)))), h("p", { class: "meta" }, "You get this list with the certificate, to tick off.")),
    h("hr", { class: "line" }),
    h("section", null, h("h2", null, "Afterwards"), h("p", { class: "soft dense" }, `The workbench searches every file of the folder for ${made && made.samples.length > 1 ? `the ${things(made.samples.length)}` : `the ${noun()}`} and prints a certificate of the result.`)),
    h("p", { class: "meta forget-milder" }, "Looking for something milder? ", h("a", { class: "quiet", href: address("pictures") }, `Remove ${noun()}s`), " from training can be undone."),
  ];
}

/** The certificate names no picture. @param {Certificate} certificate */
function certificateSheet(certificate) {
  return h(
    "article",
    { class: "erasure-sheet panel" },
    h("p", { class: "meta" }, `${server().workspace} · version ${certificate.version}`),
    h("h2", { class: "panel-title" }, "Certificate of erasure"),
    h("p", { class: "lead" }, certificate.words),
    h("dl", { class: "facts dense" }, [["Erased", things(certificate.erased)], ["When", when(certificate.time)], ["By", certificate.author], ["Reason", certificate.reason], ["How the model forgot", certificate.method], ["History’s chain", certificate.ledger_hash]].map(([name, value]) => [h("dt", { key: name }, name), h("dd", { key: `${name} value`, class: name === "History’s chain" ? "mono breaking" : "" }, value)])),
    certificate.certificate ? certificateBox(certificate.certificate) : null,
    h("h3", null, certificate.ok ? "Searched afterwards: nothing of them was found" : "Searched afterwards: something was found"),
    h("table", { class: "rows" }, h("tbody", null, certificate.audit.map((line) => h("tr", { key: line.words }, h("td", null, icon(line.ok ? "check" : "warning", 13)), h("td", null, line.words), h("td", { class: "number" }, count(line.checked)))))),
    h("h3", null, "To do elsewhere, by hand"),
    h("ul", { class: "tick-off dense" }, certificate.not_reached.map((words) => h("li", { key: words }, h("span", { class: "tick-box" }), capital(words)))),
    h("div", { class: "actions no-print" }, button("Print", { kind: "ink", icon: "print", onclick: () => window.print() }), button("Done", { onclick: () => part.reset() })),
  );
}

/** @type {import("../components/frame.js").Page} */
export const forget = {
  name: "forget",
  title: () => "Forget somebody",
  quiet: true,
  enter: (route) => {
    if (route.query.ids && route.query.ids !== part.get().text) write(route.query.ids.replaceAll(",", ", "));
  },
  keys: () => [{ key: "Escape", words: "cancel", run: () => { const { job, running: busy } = part.get(); if (busy && job) cancel(job); else if (!busy && !part.get().certificate) part.reset(); }, tray: true, infield: true }],
  draw() {
    const { text, plan: made, certificate, problem, running: busy } = part.get();
    if (certificate) return h("div", { class: "page" }, certificateSheet(certificate));
    return h(
      "div",
      { class: "forget" },
      h(
        "div",
        { class: "forget-steps" },
        h("p", { class: "lead forget-lead" }, "For a person who asks that their records be erased. This is not undo: afterwards nobody can bring the records back, nor the versions of the model that knew them."),
        problem ? trouble(problem.what, problem.todo) : null,
        stepBox(
          1, "Which records",
          h("div", { class: "forget-ids" }, h("label", { class: "unseen", for: "forget-ids" }, "Ids, separated by commas"), h("input", { id: "forget-ids", class: "field", value: text, disabled: busy, placeholder: "ids, separated by commas", autocomplete: "off", spellcheck: "false", oninput: (/** @type {Event} */ event) => write(/** @type {HTMLInputElement} */ (event.target).value) }), made ? h("span", { class: "meta" }, `${things(made.samples.length)} found`) : null),
          made ? foundRecords(made) : h("p", { class: "meta" }, `Paste the ids of the ${noun()}s. Nothing happens until you have typed the words at the end.`),
        ),
        made && made.samples.length ? steps(made) : null,
      ),
      h("aside", { class: "forget-consequences", "aria-label": "Consequences" }, consequences(made)),
    );
  },
};
