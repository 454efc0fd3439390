// Look around: what the model is, how good it is, what it gets wrong, what was edited last, what waits. Every figure is a link.
import { h } from "../core/dom.js";
import { diamond, dot, icon } from "../core/icons.js";
import { address, go, sampleAddress } from "../core/router.js";
import { get } from "../core/server.js";
import { capital, count, many, nouns, percent, plain, when } from "../core/words.js";
import { load, noun, server, slice, things } from "../core/app.js";
import { linkButton, shapes, trouble } from "../components/marks.js";
import { tile } from "../components/tile.js";
import { stagedWords } from "../components/frame.js";

/** @typedef {import("../core/api.js").Overview} Overview */
/** @typedef {import("../core/api.js").Ref} Ref */

const part = slice("overview", { view: /** @type {Overview | null} */ (null), problem: /** @type {import("../core/api.js").Problem | null} */ (null) });

const SPLITS = /** @type {Record<string, string>} */ ({ val: "validation", train: "training", test: "test" });
const NUMBERS = ["No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten", "Eleven", "Twelve"];

function enter() {
  load(part, () => get("/api/overview"), (view) => part.set({ view }));
}

/** "Eight classes, told apart by 21 concepts". */
function headline() {
  const { classes, concepts, target, target_name: name } = server();
  const by = many(concepts.length, "concept");
  if (target === "number") return `${capital(name.replaceAll("_", " "))}, worked out from ${by}`;
  return `${NUMBERS[classes.length] ?? count(classes.length)} classes, told apart by ${by}`;
}

/** @param {string} title @param {import("../core/api.js").Headline} line @param {string} of */
function figure(title, line, of) {
  const { figure: share, before, error, unit } = line;
  if (error !== null && error !== undefined && !share) {
    return h("div", { class: "figure" }, h("p", { class: "meta" }, "Off by, on average"), h("p", { class: "key-figure" }, `${plain(error)}${unit ? `\u202f${unit}` : ""}`), h("p", { class: "meta" }, of));
  }
  if (!share) return null;
  return h(
    "div",
    { class: "figure" },
    h("p", { class: "meta" }, title),
    h("p", null, h("a", { class: "key-figure figure", href: address("pictures", share.query) }, percent(share.share, share.of))),
    h("p", { class: "meta" }, `${count(share.right)} of ${count(share.of)} ${of}`),
    before && before.version !== server().version ? h("p", { class: "meta" }, `version ${before.version}: ${percent(before.share, share.of)}`) : null,
  );
}

/** @param {Overview} view */
function figures(view) {
  const since = view.since_first;
  return h(
    "div",
    { class: "overview-figures" },
    figure("Classes right", view.classes_right, `${SPLITS[view.split]} ${nouns(noun())}`),
    figure("Concepts right", view.concepts_right, "labels"),
    since && since.versions > 0
      ? h(
          "div",
          { class: "figure" },
          h("p", { class: "meta" }, "Since version 1"),
          h("p", null, h("a", { class: "key-figure figure", href: address("history", { first: 1, second: view.version }) }, count(since.concept_labels + since.class_labels))),
          h("p", { class: "meta" }, since.concept_labels + since.class_labels === 1 ? "label corrected" : "labels corrected"),
          since.samples_removed ? h("p", { class: "meta" }, `${things(since.samples_removed)} removed`) : null,
        )
      : null,
  );
}

/** The share of a class below which it is marked: clearly under the mean of all. @param {Overview} view */
function low(view) {
  const shares = view.classes.flatMap((one) => (one.figure.share === null ? [] : [one.figure.share]));
  const mean = shares.reduce((sum, share) => sum + share, 0) / (shares.length || 1);
  return mean - 0.05;
}

/** @param {Overview} view */
function classes(view) {
  if (view.classes.length === 0) return null;
  const mark = low(view);
  return h(
    "section",
    { class: "overview-classes" },
    h("div", { class: "spread" }, h("h2", null, "Classes"), h("span", { class: "meta" }, `share read right, of the ${SPLITS[view.split]} ${nouns(noun())} of each`)),
    h(
      "ul",
      { class: ["class-tiles", server().kind === "table" && "records"], style: { "--classes": Math.max(4, Math.min(10, view.classes.length)) } },
      view.classes.map((one) => {
        const poor = one.figure.share !== null && one.figure.share < mark;
        return h(
          "li",
          { key: one.name },
          one.example?.thumb ? tile({ id: one.example.id, source: one.example.thumb, href: address("pictures", one.figure.query_all), words: `${one.name}, all ${things(one.figure.of)}` }) : null,
          h(
            "div",
            { class: "spread dense" },
            h("a", { class: "plain class-name", href: address("pictures", one.figure.query_all), title: one.name }, one.name),
            h(
              "a",
              { class: ["figure", poor ? "wrong-word" : "soft"], href: address("pictures", one.figure.query), title: `${one.figure.right} of ${one.figure.of} right` },
              poor ? icon("unequal", 12) : null, percent(one.figure.share),
            ),
          ),
        );
      }),
    ),
  );
}

/** @param {Ref[]} examples @param {string} query */
const three = (examples, query) =>
  h("div", { class: "tiles" }, examples.slice(0, 3).map((one) => tile({ id: one.id, source: one.thumb, href: sampleAddress(one.id, query), words: `${one.id}, ${one.label}` })));

/** @param {Overview} view */
function worstConcepts(view) {
  const total = server().concepts.length;
  return h(
    "section",
    { class: "panel" },
    h("div", { class: "spread" }, h("h2", null, "Concepts it gets wrong most"), h("a", { class: "quiet", href: address("concepts") }, `all ${total}`)),
    view.worst_concepts.length === 0 ? h("p", { class: "soft" }, "None is read wrong.") : null,
    view.worst_concepts.map((one) => {
      const wrong = one.figure.of - one.figure.right;
      const missed = one.concept.type !== "binary" ? null : one.missed === wrong ? "all missed" : one.missed === 0 ? "none missed" : `${count(one.missed)} missed`;
      return h(
        "div",
        { class: "worst", key: one.concept.name },
        h(
          "div",
          null,
          h("a", { class: "plain", href: address("pictures", one.figure.query) }, one.concept.title),
          h("p", { class: "meta" }, `${count(wrong)} of ${count(one.figure.of)} wrong${missed ? "," : ""}`),
          missed ? h("p", { class: "meta" }, missed) : null,
        ),
        h("a", { class: "figure", href: address("concepts", { concept: one.concept.name }) }, h("b", null, percent(one.figure.share))),
        three(one.examples, one.figure.query),
      );
    }),
  );
}

/** @param {Overview} view */
function worstClasses(view) {
  if (server().target === "number") return null;
  const wrong = view.classes_right.figure ? view.classes_right.figure.of - view.classes_right.figure.right : 0;
  return h(
    "section",
    { class: "panel" },
    h("div", { class: "spread" }, h("h2", null, "Classes it gets wrong most"), h("a", { class: "quiet", href: address("pictures", view.classes_right.figure?.query ?? "wrong=class") }, wrong === 1 ? "the 1 mistake" : `all ${count(wrong)} mistakes`)),
    view.worst_classes.length === 0 ? h("p", { class: "soft" }, "None is read wrong.") : null,
    view.worst_classes.map((one) => {
      const off = one.figure.of - one.figure.right;
      return h(
        "div",
        { class: "worst", key: one.name },
        h(
          "div",
          null,
          h("a", { class: "plain", href: address("pictures", one.figure.query) }, one.name),
          h("p", { class: "meta" }, `${count(off)} of ${count(one.figure.of)} wrong,`),
          h("p", { class: "meta" }, one.mostly_as ? `${one.mostly_count} as ${one.mostly_as}` : "each as another"),
        ),
        h("a", { class: "figure", href: address("pictures", one.figure.query) }, h("b", null, percent(one.figure.share))),
        three(one.examples, one.figure.query),
      );
    }),
  );
}

/** @param {Overview} view */
function waiting(view) {
  const { waiting: wait } = view;
  const state = server();
  const suspicious = state.suspicious ?? wait.suspicious;
  const by = wait.suspicious_by_concept.slice(0, 3).map((one) => `${one.name} ${count(one.count)}`).join(", ");
  return h(
    "section",
    { class: "panel waiting" },
    h("h2", null, "Waiting for you"),
    h(
      "div",
      { class: "wait" },
      h("div", null, h("p", null, suspicious === null ? "Looking for suspicious labels …" : suspicious === 0 ? "No label looks suspicious" : [h("b", null, count(suspicious)), suspicious === 1 ? " suspicious label" : " suspicious labels"]), h("p", { class: "meta cut" }, by ? `${by}${wait.suspicious_by_concept.length > 3 ? " …" : ""}` : suspicious === 0 ? `look through the ${nouns(noun())} yourself` : "the queue fills by itself")),
      suspicious === 0 ? linkButton("Look", { href: address("pictures", { wrong: "concept" }) }) : linkButton("Start", { kind: "ink", cap: "Q", href: address("queue") }),
    ),
    h(
      "div",
      { class: "wait" },
      state.staged.total
        ? h("div", null, h("p", { class: "staged-word row" }, diamond(), stagedWords()), h("p", { class: "meta" }, `since ${when(state.staged.since, true)}, not applied`))
        : h("div", null, h("p", null, "Nothing staged"), h("p", { class: "meta" }, "answers in the queue are staged first")),
      state.staged.total ? linkButton("Preview", { cap: "P", href: address("preview") }) : null,
    ),
    wait.unsure
      ? h(
          "div",
          { class: "wait" },
          h("div", null, h("p", null, h("b", null, count(wait.unsure)), " answered “unsure”"), h("p", { class: "meta cut" }, wait.unsure_by_person.map((one) => `${count(one.count)} by ${one.name === state.person ? "you" : one.name}`).join(", "))),
          linkButton("Look", { href: address("pictures", wait.unsure_by_person[0]?.query ?? "status=unsure") }),
        )
      : null,
  );
}

/** @param {Overview} view */
function lastEdits(view) {
  return h(
    "section",
    { class: "panel" },
    h("div", { class: "spread" }, h("h2", null, "Last edits"), h("a", { class: "quiet", href: address("history") }, "history")),
    h(
      "ol",
      { class: "last-edits" },
      view.last_edits.map((one) =>
        h(
          "li",
          { key: one.version, class: one.state },
          one.state === "current" ? dot(1) : one.state === "undone" ? dot(null) : dot(0),
          h("div", null, h("a", { class: "plain", href: address("history", { second: one.version }) }, one.words), h("p", { class: "meta" }, `version ${one.version}${one.state === "plain" ? "" : `, ${one.state}`}`)),
          h("span", { class: "meta nowrap" }, [one.author, when(one.time, true)].filter(Boolean).join(", ")),
        ),
      ),
    ),
  );
}

/** @type {import("../components/frame.js").Page} */
export const overview = {
  name: "overview",
  title: () => "Overview",
  enter,
  refresh: enter,
  keys: () => [{ key: "q", words: "start the queue", run: () => go(address("queue")), tray: true }],
  draw() {
    const { view, problem } = part.get();
    if (!view) return h("div", { class: "page" }, problem ? trouble(problem.what, problem.todo) : shapes(8));
    return h(
      "div",
      { class: "page overview" },
      h("div", { class: "overview-top" }, h("div", null, h("h2", { class: "overview-title" }, headline()), h("p", { class: "overview-about" }, view.about)), figures(view)),
      classes(view),
      h("div", { class: "overview-columns" }, worstConcepts(view), worstClasses(view), h("div", { class: "column" }, waiting(view), lastEdits(view))),
    );
  },
};
