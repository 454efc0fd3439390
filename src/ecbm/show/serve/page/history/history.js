// Versions as a line, with author, reason and what changed; any two compared; the report of any; an export of one.
import { h } from "../core/dom.js";
import { diamond, icon } from "../core/icons.js";
import { address, go, sampleAddress } from "../core/router.js";
import { get } from "../core/server.js";
import { run, running } from "../core/jobs.js";
import { capital, count, many, nouns, when } from "../core/words.js";
import { change, load, noun, server, slice, store, things } from "../core/app.js";
import { button, certifiedChip, chip, empty, linkButton, shapes, trouble } from "../components/marks.js";
import { metricLines, outcomeCounts } from "../components/changes.js";
import { tile } from "../components/tile.js";
import { dot } from "../core/icons.js";

/** @typedef {import("../core/api.js").VersionRow} Row */
/** @typedef {import("../core/api.js").Comparison} Comparison */

const part = slice("history", {
  view: /** @type {import("../core/api.js").History | null} */ (null), problem: /** @type {import("../core/api.js").Problem | null} */ (null),
  comparison: /** @type {Comparison | null} */ (null), problemcompare: /** @type {import("../core/api.js").Problem | null} */ (null),
  here: -1, exporting: /** @type {number | null} */ (null), exported: /** @type {{ version: number, address: string } | null} */ (null), job: /** @type {string | null} */ (null),
});

const query = () => store.get().route.query;

function enter() {
  load(part, () => get("/api/history", { limit: 200 }), (view) => {
    part.set({ view });
    compare();
  });
}

/** The two versions to compare: from the address, or the current one with what it came from. */
function pair() {
  const { view } = part.get();
  if (!view) return null;
  const newest = Math.max(...view.rows.map((one) => one.version));
  const kept = (view.rows.find((one) => one.version === view.version)?.parent ?? 0) >= 1;
  // After an undo to the first version, what was undone is what there is to compare.
  const second = query().second ? Number(query().second) : kept ? view.version : newest;
  const row = view.rows.find((one) => one.version === second);
  const first = query().first ? Number(query().first) : (row?.parent ?? 1);
  return { first: Math.max(first, 1), second };
}

function compare() {
  const two = pair();
  if (!two || two.first === two.second || two.second < 2) {
    part.set({ comparison: null });
    return;
  }
  load(part, () => get("/api/compare", two), (comparison) => part.set({ comparison }), "compare");
}

/** @param {Row} row */
async function exportVersion(row) {
  if (part.get().exporting !== null) return;
  part.set({ exporting: row.version, exported: null });
  const job = await change(() => run("/api/exports", { version: row.version }, (started) => part.set({ job: started.id }), 2));
  part.set({ exporting: null, job: null });
  if (job?.state === "done" && job.result) part.set({ exported: { version: row.version, address: job.result } });
  else if (job?.problem) store.set({ trouble: job.problem });
}

/** Mark a version to compare: it becomes the first of the two, the one before it the second. @param {Row} row */
function markToCompare(row) {
  const two = pair();
  if (!two || row.version < 1) return;
  if (row.version === two.second || row.version === two.first) return;
  const [first, second] = [row.version, two.second].sort((one, other) => one - other);
  go(address("history", { first, second }), true);
}

/** @param {Row} row @param {number} index */
function versionRow(row, index) {
  const { here, exporting, exported } = part.get();
  const two = pair();
  const compared = two && (row.version === two.first || row.version === two.second) && two.first !== two.second;
  const changed = row.classes_changed !== null && row.classes_of ? `${count(row.classes_changed)} of ${count(row.classes_of)} changed class` : null;
  return h(
    "li",
    { key: row.version, class: ["version-row", row.state, (compared || row.state === "current") && "framed", index === here && "here"], "aria-current": row.state === "current" ? "true" : undefined },
    h("span", { class: ["node", row.state], "aria-hidden": "true" }),
    h(
      "div",
      { class: "version-words" },
      h("p", null, h("b", null, `Version ${row.version}`), " ", row.query ? h("a", { class: "plain", href: address("pictures", row.query) }, row.words) : row.words, row.state === "undone" ? [" ", chip(row.undone_by ? `undone by ${row.undone_by}, ${when(row.undone_at, true)}` : "undone")] : null, row.state === "erased" ? [" ", chip("erased before here")] : null),
      row.reason ? h("p", { class: "dense soft" }, `“${row.reason}”`) : null,
      h("p", { class: "meta row" }, h("span", null, [row.author, when(row.time)].filter(Boolean).join(", ")), changed ? h("span", null, changed) : null, row.certified && row.certified.state !== "not_certified" ? certifiedChip() : null, row.method && !["train", "exact"].includes(row.method) ? h("span", null, row.method) : null),
    ),
    h(
      "div",
      { class: "version-actions" },
      row.state === "current" ? chip("current") : null,
      compared ? h("span", { class: "chip outlined" }, "compared") : row.version > 0 && (part.get().view?.rows.length ?? 0) > 2 && row.state !== "erased" ? button("Compare", { kind: "quiet", "aria-label": `Compare version ${row.version}`, onclick: () => markToCompare(row) }) : null,
      row.can_report ? h("a", { class: "button quiet", href: address("audit", { version: row.version }), "aria-label": `Report of version ${row.version}` }, "Report") : null,
      row.can_export
        ? exported?.version === row.version
          ? h("a", { class: "button", href: exported.address, download: "" }, "Save zip")
          : button(exporting === row.version ? "Exporting …" : "Export", { kind: "quiet", "aria-label": `Export version ${row.version}`, disabled: exporting !== null, onclick: () => exportVersion(row) })
        : null,
    ),
  );
}

function stagedRow() {
  const { staged, version } = server();
  if (staged.total === 0) return null;
  return h(
    "li",
    { key: "staged", class: "version-row staged" },
    h("span", { class: "node staged", "aria-hidden": "true" }, h("svg", { viewBox: "0 0 14 14", width: 14, height: 14 }, h("path", { d: "M7 1 13 7 7 13 1 7z", class: "node-diamond" }))),
    h("div", { class: "version-words" }, h("p", { class: "staged-word" }, "Staged ", h("span", { class: "staged-light" }, staged.words)), h("p", { class: "meta" }, `by you, since ${when(staged.since, true)}, would become version ${version + 1}`)),
    h("div", { class: "version-actions" }, linkButton("Preview", { cap: "P", href: address("preview") })),
  );
}

/** @param {"first" | "second"} which */
function versionChoice(which) {
  const { view } = part.get();
  const two = pair();
  if (!view || !two) return null;
  const choices = view.rows.filter((row) => row.version > 0 && row.state !== "erased");
  return h(
    "select",
    { class: "button version-select", "aria-label": which === "first" ? "The version before" : "The version after", value: String(two[which]), onchange: (/** @type {Event} */ event) => go(address("history", { ...two, [which]: Number(/** @type {HTMLSelectElement} */ (event.target).value) }), true) },
    choices.map((row) => h("option", { key: row.version, value: String(row.version) }, `Version ${row.version}`)),
  );
}

/** @param {import("../core/api.js").LabelsCorrected} one @param {Comparison} view */
function corrected(one, view) {
  return h(
    "div",
    { class: "corrected", key: `${one.title} ${one.before} ${one.after}` },
    h("div", null, h("p", { class: "dense" }, one.title), h("p", { class: "meta" }, one.before === "absent" || one.before === "present" ? [dot(one.before === "present" ? 1 : 0), " → ", dot(one.after === "present" ? 1 : 0), " "] : `${one.before} → ${one.after} `, count(one.count))),
    h("div", { class: "tiles" }, one.examples.slice(0, 8).map((ref) => tile({ id: ref.id, source: ref.thumb, href: sampleAddress(ref.id, one.concept ? { concept: one.concept } : {}), words: ref.id })), one.examples.length === 0 && view.second ? h("span", { class: "meta" }, "") : null),
  );
}

function comparisonColumn() {
  const { comparison, view, problemcompare } = part.get();
  const two = pair();
  if (!view || !two) return shapes(6);
  if (view.rows.filter((row) => row.version > 0).length < 2) return empty("There is one version so far.", "Correct a label and commit it: what that changed is then shown here, beside the version before.", linkButton("Queue", { kind: "ink", href: address("queue") }));
  const head = h("div", { class: "spread compare-head" }, h("div", { class: "row" }, h("h2", null, "Compare"), versionChoice("first"), icon("arrow"), versionChoice("second")), comparison ? h("span", { class: "meta" }, `${many(comparison.edits, "edit")}, ${comparison.people.length === 1 ? comparison.people[0] : `${comparison.people.length} people`}`) : null);
  if (problemcompare) return [head, trouble(problemcompare.what, problemcompare.todo)];
  if (!comparison) return [head, two.first === two.second ? h("p", { class: "soft" }, "Choose two different versions.") : shapes(5)];
  return [
    head,
    h("p", { class: "lead" }, capital(comparison.words.replace(/^Between them: /, ""))),
    metricLines(`Right on ${count(comparison.of)} validation ${nouns(noun())}`, comparison.metrics, comparison.unchanged_concepts, [`version ${comparison.first}`, `version ${comparison.second}`]),
    h("hr", { class: "line" }),
    h("section", null, h("h2", null, comparison.flips_total ? `${capital(nouns(noun()))} that changed class` : `No validation ${noun()} changed class`), outcomeCounts(comparison),
      h("div", { class: "flip-pictures" }, comparison.flips.slice(0, 8).map((flip) => h("a", { key: flip.id, class: "flip-picture", href: sampleAddress(flip.id) }, flip.picture ? h("img", { src: flip.picture, alt: "", loading: "lazy" }) : h("span", { class: "mono" }, flip.id), h("s", { class: "meta" }, flip.before), h("b", { class: "dense" }, flip.after, " ", flip.outcome === "becomes_right" ? icon("check", 11) : h("span", { class: "wrong-word" }, icon("close", 11))), h("span", { class: "meta" }, `labelled ${flip.label}`))))),
    comparison.labels.length ? [h("hr", { class: "line" }), h("section", null, h("div", { class: "spread" }, h("h2", null, "Labels that were corrected"), h("a", { class: "quiet", href: address("pictures", { changed: comparison.second }) }, `all ${count(comparison.labels.reduce((sum, one) => sum + one.count, 0))}`)), comparison.labels.map((one) => corrected(one, comparison)))] : null,
  ];
}

/** @param {number} by */
function step(by) {
  const { view, here } = part.get();
  if (!view) return;
  part.set({ here: Math.max(0, Math.min(view.rows.length - 1, here + by)) });
  requestAnimationFrame(() => document.querySelector(".version-row.here")?.scrollIntoView({ block: "nearest" }));
}

/** @type {import("../components/frame.js").Page} */
export const history = {
  name: "history",
  title: () => "History",
  extra: () => h("span", { class: "soft wide" }, `changes are counted on the ${things(server().splits.val ?? 0).replace(/\u00a0/, " validation ")}`),
  fixed: () => true,
  needsModel: false,
  enter,
  refresh: enter,
  keys: () => [
    { key: "ArrowUp", words: "choose", run: () => step(-1), tray: true },
    { key: "ArrowDown", words: "choose", run: () => step(1), tray: true },
    { key: "m", words: "mark to compare", run: () => { const row = part.get().view?.rows[part.get().here]; if (row) markToCompare(row); }, tray: true },
  ],
  draw() {
    const { view, problem, job } = part.get();
    if (!view) return h("div", { class: "page" }, problem ? trouble(problem.what, problem.todo) : shapes(8));
    const exporting = job ? store.get().jobs[job] : null;
    return h(
      "div",
      { class: "history" },
      h("section", { class: "versions", "aria-label": "Versions", tabindex: "0" }, h("ol", { class: "version-line" }, stagedRow(), view.rows.map(versionRow)), running(exporting) ? h("p", { class: "meta" }, exporting?.progress.step) : null, view.rows.length < view.total ? h("p", { class: "meta" }, `The last ${count(view.rows.length)} of ${count(view.total)} versions.`) : null),
      h("section", { class: "compare", "aria-label": "Compare", tabindex: "0" }, comparisonColumn()),
      h("span", { class: "unseen" }, diamond(0)),
    );
  },
};
