// The staged edit as a list that can be trimmed, what it would change, the certificate in one sentence, and the commit.
import { h } from "../core/dom.js";
import { diamond, dot, icon } from "../core/icons.js";
import { address, go, sampleAddress } from "../core/router.js";
import { capital, count, many, nouns, seconds } from "../core/words.js";
import { cancel } from "../core/jobs.js";
import { move, noun, server, store, things } from "../core/app.js";
import { button, cap, empty, linkButton, shapes, trouble, working } from "../components/marks.js";
import { tile } from "../components/tile.js";
import { certificateBox, flipCard, metricLines, outcomeCounts, readingLines } from "../components/changes.js";
import { choose, commit, enter, part, preview as compute, refresh, takeOut } from "./previewing.js";

/** @typedef {import("../core/api.js").StagedGroup} Group */
/** @typedef {import("../core/api.js").StagedItem} Item */

/** @type {Map<number, () => void>} */
const takers = new Map();
/** @param {number} item */
function taker(item) {
  let found = takers.get(item);
  if (!found) {
    found = () => void takeOut({ items: [item] });
    takers.set(item, found);
  }
  return found;
}

/** @param {string} word @param {string} extra */
const sign = (word, extra) => (word === "present" ? dot(1, extra) : word === "absent" ? dot(0, extra) : word === "missing" || word === "no label" ? dot(null, extra) : h("span", { class: extra === "staged" ? "staged-word" : "soft" }, word));

/** @param {Group} group */
function stagedGroup(group) {
  const pictures = group.items.some((item) => item.thumb);
  return h(
    "section",
    { class: "staged-group", key: group.key },
    h("div", { class: "spread" }, h("h3", null, group.title, " ", group.before || group.after ? [sign(group.before, ""), " → ", sign(group.after, "staged")] : null), h("button", { type: "button", class: "staged-count", title: "take all of these out", "aria-label": `Take all ${group.count} out`, onclick: () => takeOut({ group: group.key }) }, diamond(8), count(group.count))),
    pictures
      ? h("div", { class: "staged-grid" }, group.items.slice(0, 60).map((item) => tile({ id: `${item.item}`, source: item.thumb, badge: item.fits ? null : "wrong", words: `${item.id}: ${item.words}${item.fits ? "" : `, does not fit: ${item.why}`}. Take it out`, title: `${item.id}: click to take it out`, onclick: taker(item.item) })))
      : h("ul", { class: "staged-lines" }, group.items.slice(0, 60).map((item) => stagedLine(item))),
    group.count > 60 ? h("p", { class: "meta" }, `and ${count(group.count - 60)} more`) : null,
    group.items.filter((item) => !item.fits).slice(0, 3).map((item) => h("p", { class: "meta", key: `why ${item.item}` }, icon("unequal", 11), ` ${item.id ?? item.title}: ${item.why}`)),
  );
}

/** @param {Item} item */
function stagedLine(item) {
  return h("li", { key: item.item, class: "spread" }, item.id ? h("a", { class: "quiet", href: sampleAddress(item.id, item.concept ? { concept: item.concept } : {}) }, item.id) : h("span", { class: "dense" }, capital(item.words)), h("button", { type: "button", class: "button bare icon-only", "aria-label": `Take out ${item.words}`, onclick: taker(item.item) }, icon("close", 12)));
}

function stagedColumn() {
  const { staged } = part.get();
  if (!staged) return shapes(6);
  return [
    h("div", { class: "spread" }, h("h2", { class: "nowrap" }, "You have staged"), h("span", { class: "meta" }, staged.counts.labels === staged.counts.total ? many(staged.counts.labels, "label") : many(staged.counts.total, "change"))),
    staged.groups.map(stagedGroup),
    h("p", { class: "meta" }, `Click a ${noun()} to take it out. What is staged is kept when you close the page.`),
    h("div", { class: "column-foot actions" }, h("a", { class: "button", href: "/api/staged/file", download: "edit.json" }, "Save as a file"), button("Take all back", { kind: "quiet", onclick: () => takeOut({ everything: true }) })),
  ];
}

function changesColumn() {
  const { view, doing, problem } = part.get();
  if (!view) {
    if (doing === "preview") return progress("Working out what would change");
    return problem ? problemBox() : shapes(6);
  }
  const stale = doing === "preview";
  return [
    problem ? problemBox() : null,
    stale ? progress("Working out what would change") : null,
    h("h2", { class: "preview-title" }, view.words),
    outcomeCounts(view),
    view.flips_total === 0 && server().target === "class"
      ? h("p", { class: "soft" }, "The labels are still worth having; commit if you like.")
      : null,
    h("div", { class: "flips" }, view.flips.slice(0, 24).map((flip, index) => flipCard(flip, index === part.get().at - 1))),
    view.flips_total > 24 ? h("p", { class: "meta" }, h("a", { class: "quiet", href: address("pictures", { ids: view.flips.map((flip) => flip.id).join(",") }) }, `all ${count(view.flips_total)}`)) : null,
    view.readings_changed
      ? h("section", { class: "readings" }, h("div", { class: "spread" }, h("h2", null, `${many(view.readings_changed, "concept reading")} would change`), h("span", { class: "meta" }, `of ${count(view.readings_of)} on the validation ${nouns(noun())}`)), readingLines(view.readings))
      : null,
    view.notes.map((note) => h("p", { class: "meta", key: note }, note)),
  ];
}

/** @param {string} title */
function progress(title) {
  const { job, asked } = part.get();
  const now = job ? store.get().jobs[job] : null;
  const elapsed = now?.progress.seconds ?? (Date.now() - asked) / 1000;
  return working({
    title, step: now?.progress.step || "starting", share: now && now.progress.total ? now.progress.done / now.progress.total : null, seconds: elapsed,
    cancel: now?.can_cancel ? () => void cancel(now.id) : null,
  });
}

function problemBox() {
  const { problem, doing } = part.get();
  if (!problem) return null;
  const full = problem.kind === "full_disk";
  const safe = full ? `The model is still version ${server().version}; your ${many(server().staged.total, "staged change")} ${server().staged.total === 1 ? "is" : "are"} safe. ${problem.todo}` : problem.todo;
  return trouble(full ? "Not committed: the disk is full." : problem.what, safe, button("Try again", { kind: "ink", disabled: doing !== "", onclick: () => (full ? commit() : compute()) }), h("a", { class: "button", href: "/api/staged/file", download: "edit.json" }, "Save the edit as a file"));
}

function decisionColumn() {
  const { view, doing, method, reason } = part.get();
  const committing = doing === "commit";
  const ready = Boolean(view) && reason.trim() !== "" && doing === "";
  const retraining = view?.methods.find((one) => one.method === "retrain")?.seconds ?? null;
  return [
    h(
      "div",
      { class: "decision-scroll" },
      view ? metricLines(`On ${count(view.of)} validation ${nouns(noun())}`, view.metrics, view.unchanged_concepts, ["now", "after"]) : shapes(5),
      view ? certificateBox(view.certificate, method === "exact" ? null : h("button", { type: "button", class: "quiet-link", onclick: () => choose("exact", null) }, "Use exact")) : null,
      view
        ? h(
            "section",
            { class: "method" },
            h("div", { class: "spread" }, h("h2", null, "Method"), h("span", { class: "meta" }, retraining !== null ? `instead of about ${seconds(retraining)} of retraining` : "")),
            h("div", { class: "segments", role: "group", "aria-label": "Method" }, view.methods.map((one) => h("button", { type: "button", key: `${one.method} ${one.budget}`, "aria-pressed": one.method === view.method, title: one.words, disabled: committing, onclick: () => choose(one.method, one.budget) }, `${one.title}${one.seconds !== null ? `, ${seconds(one.seconds)}` : ""}`))),
            h("p", { class: "meta" }, view.methods.find((one) => one.method === view.method)?.words ?? ""),
          )
        : null,
      view ? h("p", { class: "dense soft made-for" }, icon("check", 14), h("span", null, view.version === server().version ? `Made for version ${view.version}, still the current one. If somebody commits first, your labels are carried over and you see this page again.` : `Made for version ${view.version}; the current one is ${server().version}.`)) : null,
    ),
    h(
      "form",
      { class: "commit", onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); commit(); } },
      committing
        ? progress(`Committing version ${view?.next_version ?? ""}`)
        : [
            h("label", { class: "labelled", for: "reason" }, h("span", { class: "spread" }, h("b", null, "Reason"), "required, kept in the history")),
            h("textarea", { id: "reason", class: "field", rows: 2, value: reason, maxlength: 2000, oninput: (/** @type {Event} */ event) => part.set({ reason: /** @type {HTMLTextAreaElement} */ (event.target).value }) }),
            h("div", { class: "commit-buttons" }, button(`Commit version ${view?.next_version ?? server().version + 1}`, { type: "submit", kind: "staged", icon: "diamond", cap: ["Ctrl", "↵"], disabled: !ready }), linkButton("Back", { href: address("queue") })),
            h("p", { class: "meta" }, reason.trim() === "" ? "Say why first; then " : "", "one click or ", cap("Ctrl", "Z"), " takes it back."),
          ],
    ),
  ];
}

/** After the commit: the difference to the version before. */
function after() {
  const { done } = part.get();
  if (!done) return null;
  return h(
    "div",
    { class: "page committed" },
    h("div", { class: "notice committed-notice", role: "status" }, h("p", { class: "notice-title" }, icon("check"), `Version ${done.second} is the current one.`), h("p", null, capital(done.words.replace(/^Between them: /, ""))), h("div", { class: "actions" }, linkButton("Back to the queue", { kind: "ink", cap: "G Q", href: address("queue") }), button("Undo", { cap: ["Ctrl", "Z"], onclick: () => { part.set({ done: null }); move("undo").then(refresh); } }), linkButton("History", { href: address("history", { first: done.first, second: done.second }) }))),
    h("div", { class: "committed-columns" },
      metricLines(`Right on ${count(done.of)} validation ${nouns(noun())}`, done.metrics, done.unchanged_concepts, [`version ${done.first}`, `version ${done.second}`]),
      h("section", null, h("h2", null, done.flips_total ? `${things(done.flips_total)} changed class` : `No validation ${noun()} changed class`), outcomeCounts(done), h("div", { class: "flips" }, done.flips.slice(0, 12).map((flip) => flipCard(flip))))),
  );
}

/** @param {number} by */
function step(by) {
  const { view, at } = part.get();
  if (!view || view.flips.length === 0) return;
  const next = Math.max(1, Math.min(view.flips.length, at + by));
  part.set({ at: next });
  const card = /** @type {HTMLElement | undefined} */ (document.querySelectorAll(".flips .flip")[next - 1]);
  card?.focus();
}

/** Take out the tile that has the focus. */
function takeOutHere() {
  const focused = document.activeElement;
  if (focused instanceof HTMLElement && focused.closest(".staged-grid, .staged-lines")) focused.click();
}

/** @type {import("../components/frame.js").Page} */
export const preview = {
  name: "preview",
  rail: "",
  title: () => (part.get().done ? "Committed" : "Preview"),
  note: "this is what they would do; the model is unchanged",
  extra: () => {
    const { view, doing, done } = part.get();
    return h("span", { class: "soft wide" }, done ? "" : doing === "preview" ? "computing …" : view ? `computed in ${seconds(view.seconds)}, nothing applied` : "");
  },
  fixed: () => !part.get().done,
  enter,
  refresh,
  keys: () => [
    { key: "Enter", ctrl: true, words: "commit", run: commit, tray: true, infield: true },
    { key: "ArrowLeft", words: `${nouns(noun())} that change`, run: () => step(-1), tray: true },
    { key: "ArrowRight", words: `${nouns(noun())} that change`, run: () => step(1), tray: true },
    { key: "x", words: "take out", run: takeOutHere, tray: true },
    { key: "Escape", words: "back", run: escape, tray: true, infield: true },
  ],
  draw() {
    const { staged, done } = part.get();
    if (done) return after();
    if (staged && staged.counts.total === 0) {
      return h("div", { class: "centred" }, part.get().problem ? problemBox() : null, empty("Nothing staged.", `Answer a question in the queue, or correct a label on a ${noun()}.`, linkButton("Queue", { kind: "ink", href: address("queue") }), linkButton(capital(nouns(noun())), { href: address("pictures") })));
    }
    return h(
      "div",
      { class: "preview" },
      h("section", { class: "preview-staged", "aria-label": "Staged", tabindex: "0" }, stagedColumn()),
      h("section", { class: "preview-changes", "aria-label": "What would change", tabindex: "0" }, changesColumn()),
      h("section", { class: "preview-decision", "aria-label": "Decision" }, decisionColumn()),
    );
  },
};

function escape() {
  const { job, doing } = part.get();
  if (doing && job) cancel(job);
  else if (document.activeElement instanceof HTMLTextAreaElement) document.activeElement.blur();
  else go(address("queue"));
}
