// Work through a queue: one picture, one question, one key. What is answered is staged, not applied.
import { h } from "../core/dom.js";
import { diamond, dot, icon } from "../core/icons.js";
import { address, go, sampleAddress } from "../core/router.js";
import { capital, count, many, nouns, shown } from "../core/words.js";
import { answer, mark, noun, say, server, store } from "../core/app.js";
import { cap, empty, linkButton, shapes, trouble } from "../components/marks.js";
import { tile } from "../components/tile.js";
import "../components/window.js";
import { closeFilters, concept, conceptTitle, filterChips, filterCount, filtersOpen, openFilters } from "../components/filters.js";
import { answered, detailKey, enter, goTo, inSight, part, refresh, sourceOf } from "./questions.js";
import { reasonsPanel } from "./reasons.js";
import { answerKey, isLabel, valueAnswers, valuesOf } from "./values.js";

/** @typedef {import("./questions.js").Question} Question */

const query = () => store.get().route.query;

/** @returns {Question | undefined} */
const here = () => part.get().items[part.get().at];

/** What the question is called. @param {Question} question */
function asks(question) {
  if (question.concept === null) return "Which class is it?";
  const info = concept(question.concept);
  const title = info ? (info.title.includes(":") ? `${info.group_title} ${info.short}` : info.title) : question.concept;
  if (info && info.type !== "binary") return `${title}: what is it?`;
  return server().kind === "pictures" ? `${title}: do you see it?` : `${title}: does it apply?`;
}

/** @param {Question} question */
const binary = (question) => question.concept !== null && (concept(question.concept)?.type ?? "binary") === "binary";

/** Store an answer and go on; the focus stays, the next question is announced. @param {"present" | "absent" | "unsure"} given */
function give(given) {
  const question = here();
  if (!question) return;
  if (given !== "unsure" && !binary(question)) return;
  const status = given === "unsure" ? "unsure" : question.label_words === given ? "kept" : "staged";
  answer(question.id, question.concept, given, status);
  next(given);
  answered(query());
}

/** @param {Question} question @param {string | number} value */
export function giveValue(question, value) {
  answer(question.id, question.concept, "value", isLabel(question, value) ? "kept" : "staged", value);
  next(String(value));
  answered(query());
}

/** @param {string} given */
function next(given) {
  const { at, total } = part.get();
  if (at + 1 < total) goTo(at + 1, query());
  const question = here();
  say(at + 1 < total && question ? `${capital(given)}. ${asks(question)} ${question.id}` : `${capital(given)}. That was the last one.`);
}

/** @param {number} by */
function step(by) {
  const { at, total } = part.get();
  if (at + by < 0 || at + by >= total) return;
  goTo(at + by, query());
  const question = here();
  if (question) say(`${asks(question)} ${question.id}`);
}

function open() {
  const question = here();
  if (question) go(sampleAddress(question.id, { concept: question.concept }));
}

function toggleBlind() {
  part.set({ blind: !part.get().blind });
  say(part.get().blind ? "Read blind: model, label and reasons are hidden until you answer." : "Reasons are shown.");
}

function filters() {
  const { blind } = part.get();
  const words = query();
  const suspicious = sourceOf(words) === "suspicious";
  return h(
    "div",
    { class: "filters queue-filters" },
    h(
      "button",
      {
        type: "button", class: "choice", "aria-pressed": undefined,
        title: suspicious ? "Ask about every picture that fits instead" : "Only suspicious labels",
        onclick: () => (suspicious && !words.concept ? openFilters("queue") : go(address("queue", { ...words, from: suspicious ? "pictures" : "", at: "" }))),
      },
      h("b", null, suspicious ? "Suspicious labels" : `All ${nouns(noun())} that fit`), icon("down", 12),
    ),
    filterChips("queue", words, (all) => ({ from: all.from ?? "" })),
    h("span", { class: "gap" }),
    h("span", { class: "queue-order meta" }, suspicious ? `Most likely wrong first${part.get().moved ? `; your answers moved ${many(part.get().moved, "label")} up` : ""}` : ""),
    h("span", { class: "queue-place-short" }, place()),
    h("button", { type: "button", class: "choice faint", "aria-pressed": blind, onclick: toggleBlind }, blind ? "Reading blind" : [h("span", { class: "long" }, "Hide the reasons, read blind"), h("span", { class: "short" }, "Blind")], cap("B")),
  );
}

const place = () => {
  const { at, total } = part.get();
  return total ? [h("b", null, count(at + 1)), ` of ${count(total)}`] : null;
};

/** @param {Question} question @param {boolean} hidden */
function answers(question, hidden) {
  const given = mark(question.id, question.concept, question.status, question.staged);
  const said = given.status === "plain" ? null : given.status === "unsure" ? "unsure" : given.status === "kept" ? question.label_words : given.value === 1 ? "present" : "absent";
  /** @param {"present" | "absent" | "unsure"} name @param {string} key */
  const one = (name, key) => {
    const keeps = question.label_words === name;
    const words = name === "unsure" ? ["asks somebody else", "asks others"] : hidden ? ["", ""] : keeps ? ["keeps the label", "keeps"] : ["stages a correction", "corrects"];
    return h(
      "button",
      { key: name, type: "button", class: ["answer", said === name && "given"], "aria-pressed": said === name, onclick: () => give(name) },
      cap(key),
      h(
        "span",
        null,
        h("b", null, capital(name)),
        words[0] ? h("span", { class: ["answer-words", !keeps && name !== "unsure" && "staged-word"] }, !keeps && name !== "unsure" ? diamond(8) : null, h("span", { class: "long" }, words[0]), h("span", { class: "short" }, words[1])) : null,
      ),
    );
  };
  return h("div", { class: "answers", role: "group", "aria-label": asks(question) }, one("present", "1"), one("absent", "0"), one("unsure", "U"));
}

/** @param {Question} question */
function stageOf(question) {
  const { details, blind } = part.get();
  const detail = details[detailKey(question)];
  const given = mark(question.id, question.concept, question.status);
  const hidden = blind && given.status === "plain";
  const picture = detail?.picture ?? question.thumb;
  return h(
    "section",
    { class: "stage", "aria-label": "The question" },
    picture
      ? h("div", { class: "stage-picture" }, h("img", { key: question.id, src: picture, alt: `${question.id}`, class: "stage-img", onclick: open }))
      : h(
          "div",
          { class: "stage-fields" },
          h("p", { class: "mono" }, question.id),
          h("dl", { class: "fields" }, question.fields.map((field) => [h("dt", null, field.name), h("dd", null, shown(field.value))])),
        ),
    h("h2", { class: "stage-question" }, asks(question)),
    h(
      "p",
      { class: "stage-label dense soft" },
      hidden ? "Label and model are hidden until you answer" : ["Label now: ", binary(question) ? [dot(question.label_words === "missing" ? null : question.label_words === "present" ? 1 : 0), " "] : null, question.label_words === "missing" ? "none" : question.label_words, detail?.annotator ? `, by ${detail.annotator}` : ""],
      given.waiting ? h("b", null, " · not stored, trying again") : null,
    ),
    binary(question) ? answers(question, hidden) : valueAnswers(question, hidden, giveValue, () => give("unsure")),
  );
}

function strip() {
  const { items, total, at, answered, key } = part.get();
  const { marks } = store.get();
  return h(
    "section",
    { class: "strip", "aria-label": "The queue" },
    h("div", { class: "strip-progress", "aria-hidden": "true" }, h("div", { style: { width: `${total ? (100 * at) / total : 0}%` } })),
    h("div", { class: "strip-place dense" }, place(), answered ? h("p", { class: "meta" }, `${count(answered)} answered`) : null),
    h("windowed-list", {
      class: "strip-list",
      given: {
        total, width: 64, height: 88, gap: 12, sideways: true, at, label: "Questions", revision: [items, marks, key],
        inSight: (/** @type {number} */ first, /** @type {number} */ last) => inSight(first, last, query()),
        item: (/** @type {number} */ index) => stripItem(index, index === at),
      },
    }),
  );
}

/** @param {number} index @param {boolean} isHere */
function stripItem(index, isHere) {
  const question = part.get().items[index];
  if (!question) return h("div", { class: "tile shape", key: "empty" });
  const given = mark(question.id, question.concept, question.status);
  const status = given.status === "plain" || given.status === "removed" ? null : given.status;
  return tile(
    {
      id: question.id, source: question.thumb, badge: status, here: isHere, waiting: given.waiting,
      words: `${index + 1}, ${question.id}, ${question.concept ? conceptTitle(question.concept) : "class"}`, onclick: jump(index),
    },
    { key: "tile" },
  );
}

/** One function for each place, so that an unchanged tile is given an unchanged value. @type {Map<number, () => void>} */
const jumps = new Map();
/** @param {number} index */
function jump(index) {
  let found = jumps.get(index);
  if (!found) {
    found = () => goTo(index, query());
    jumps.set(index, found);
  }
  return found;
}

function nothing() {
  const words = query();
  const { concepts } = part.get();
  if (sourceOf(words) === "pictures") {
    return empty(`No ${noun()} fits all ${filterCount(words)} filters.`, "Take one away.", linkButton("Only suspicious labels", { href: address("queue") }));
  }
  const other = concepts.length > 0 || filterCount(words) > 0;
  return empty(
    "Nothing suspicious is left here.",
    other ? "Choose another concept, or look at what you have staged." : server().staged.total ? "Look at what you have staged, or ask about every label of a concept." : "Ask about every label of a concept, or correct what you find yourself.",
    concepts.slice(0, 4).map((one) => linkButton(`${conceptTitle(one.name)}, ${count(one.count)}`, { href: address("queue", one.query || { concept: one.name }) })),
    filterCount(words) ? linkButton("All suspicious labels", { href: address("queue") }) : null,
    server().staged.total ? linkButton("Preview", { cap: "P", href: address("preview") }) : null,
    other ? null : [linkButton("Concepts", { href: address("concepts") }), linkButton(capital(nouns(noun())), { href: address("pictures") })],
  );
}

/** @type {import("../components/frame.js").Page} */
export const queue = {
  name: "queue",
  title: () => "Queue",
  fixed: () => true,
  enter: (route) => enter(route.query),
  refresh: () => refresh(query()),
  leave: closeFilters,
  keys() {
    if (filtersOpen()) return [{ key: "Escape", words: "close", run: closeFilters, infield: true }];
    const question = here();
    const asked = !question || binary(question);
    return [
      ...(asked ? [
        { key: "1", words: "answer", run: () => give("present"), tray: true },
        { key: "0", words: "answer", run: () => give("absent"), tray: true },
      ] : []),
      ...(question && !asked ? digits(question) : []),
      { key: "u", words: "answer", run: () => give("unsure"), tray: true },
      { key: "ArrowLeft", words: "back, next", run: () => step(-1), tray: true },
      { key: "ArrowRight", words: "back, next", run: () => step(1), tray: true },
      { key: "Backspace", words: "back; never deletes", run: () => step(-1) },
      { key: "o", words: `open ${noun()}`, run: open, tray: true },
      { key: "f", words: "filter", run: () => openFilters("queue") },
      { key: "b", words: "read blind", run: toggleBlind },
    ];
  },
  draw() {
    const { total, problem, loading, ready, job, items, at } = part.get();
    const question = here();
    let body;
    if (problem && !total) body = h("div", { class: "centred" }, trouble(problem.what, problem.todo));
    else if (!ready) body = h("div", { class: "centred" }, looking(job));
    else if (total === 0 && !loading && part.get().key) body = h("div", { class: "centred" }, nothing());
    else if (!question) body = shapes(5);
    else body = [stageOf(question), reasonsPanel(question, part.get().blind && mark(question.id, question.concept, question.status).status === "plain")];
    return h("div", { class: "queue" }, filters(), h("div", { class: "queue-body", key: "body" }, body), total && items[at] ? strip() : null);
  },
};

/** A digit for each value of a typed concept or class. @param {Question} question @returns {import("../core/keys.js").Key[]} */
function digits(question) {
  const values = valuesOf(question);
  return values.flatMap((value, index) => {
    const key = answerKey(values, index);
    return key ? [{ key, words: "answer", run: () => giveValue(question, value), tray: true }] : [];
  });
}

/** @param {string | null} job */
function looking(job) {
  const now = job ? store.get().jobs[job] : null;
  return empty("Looking for suspicious labels …", now ? `${now.progress.step}, ${Math.round(now.progress.seconds)} s` : "This is done once for each version; the page goes on by itself.");
}
