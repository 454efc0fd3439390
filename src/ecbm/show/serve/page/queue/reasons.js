// Why a label is in the queue, most telling reason first, and what the concept looks like.
import { h } from "../core/dom.js";
import { dot, icon } from "../core/icons.js";
import { address, sampleAddress } from "../core/router.js";
import { count, percent } from "../core/words.js";
import { mark } from "../core/app.js";
import { greyBar, labelWord } from "../components/bars.js";
import { shapes } from "../components/marks.js";
import { tile } from "../components/tile.js";
import { concept, conceptTitle } from "../components/filters.js";
import { detailKey, part } from "./questions.js";

/** @typedef {import("./questions.js").Question} Question */
/** @typedef {import("./questions.js").Detail} Detail */
/** @typedef {import("../core/api.js").Reason} Reason */

/** The model's bar against the label's dot. @param {Detail} detail */
function modelBar(detail) {
  const label = detail.label;
  if (!label || label.probability === null || label.probability === undefined) return null;
  const yesNo = (concept(label.concept)?.type ?? "binary") === "binary";
  const value = yesNo && typeof label.label === "number" ? label.label : null;
  return h(
    "div",
    { class: "reason-bar" },
    h("span", { class: "bar-track" }, h("span", { class: ["bar-fill", label.wrong && "hatched"], style: { width: `${100 * label.probability}%` } }), h("span", { class: "bar-tick" })),
    h("span", { class: ["dense", label.wrong && "wrong-word"] }, percent(label.probability), yesNo ? "" : ` ${label.predicted_words}`, " ", label.wrong ? icon("unequal", 13) : null),
    h("span", { class: "meta nowrap" }, yesNo ? [dot(value), ` ${labelWord(value)}`] : label.label_words === "missing" ? "no label" : `label: ${label.label_words}`),
  );
}

/** Under a similar picture: the label's dot, or its value in words. @param {Reason["examples"][number]} one */
function exampleLabel(one) {
  if (!one.concept) return null;
  const yesNo = (concept(one.concept.concept)?.type ?? "binary") === "binary";
  if (yesNo) return typeof one.concept.label === "string" ? null : dot(one.concept.label);
  return h("span", { class: "meta" }, one.concept.label_words === "missing" ? "–" : one.concept.label_words);
}

/** @param {Reason} reason @param {number} index @param {Detail} detail @param {string | null} about */
function drawReason(reason, index, detail, about) {
  return h(
    "li",
    { class: "reason", key: `${index} ${reason.kind}` },
    h("span", { class: "reason-number", "aria-hidden": "true" }, String(index + 1)),
    h(
      "div",
      null,
      h("p", null, reason.words),
      reason.note ? h("p", { class: "meta" }, reason.note) : null,
      reason.kind === "model" ? modelBar(detail) : null,
      reason.examples.length
        ? h(
            "ul",
            { class: "reason-examples" },
            reason.examples.slice(0, 6).map((one) =>
              h("li", { key: one.id }, tile({ id: one.id, source: one.thumb, href: sampleAddress(one.id, about ? { concept: about } : {}), words: `${one.id}, ${one.concept?.label_words ?? one.label}` }), exampleLabel(one))),
          )
        : null,
      reason.shares.length && reason.kind !== "model" && reason.examples.length === 0
        ? h(
            "div",
            { class: "reason-shares" },
            reason.shares.map((one) => [
              h("span", { class: "meta" }, one.name), greyBar(one.share),
              h("span", { class: "meta number" }, one.count !== null && one.of !== null ? `${count(one.count)} of ${count(one.of)}` : percent(one.share)),
            ]),
          )
        : null,
    ),
  );
}

/** @param {Question} question @param {Detail} detail */
function looksLike(question, detail) {
  const looks = detail.looks_like;
  if (!looks || question.concept === null || (looks.present.length === 0 && looks.absent.length === 0)) return null;
  /** @param {import("../core/api.js").Ref[]} refs @param {number} value @param {string} query @param {number} total */
  const side = (refs, value, query, total) =>
    h(
      "div",
      { key: value },
      h("p", { class: "meta spread" }, h("span", null, dot(value), ` ${labelWord(value)}`), h("a", { class: "quiet", href: address("pictures", query) }, `all ${count(total)}`)),
      h("div", { class: "looks-grid" }, refs.slice(0, 4).map((one) => tile({ id: one.id, source: one.thumb, href: sampleAddress(one.id), words: `${one.id}, ${labelWord(value)}` }))),
    );
  return h(
    "section",
    { class: "looks-like" },
    h("h2", null, `${conceptTitle(question.concept)}: what it looks like`),
    h("div", { class: "looks-sides" }, side(looks.present, 1, looks.present_query, looks.present_count), side(looks.absent, 0, looks.absent_query, looks.absent_count)),
  );
}

/** @param {Question} question @param {boolean} hidden read blind: nothing may lead the answer */
export function reasonsPanel(question, hidden) {
  const { details, reasons: unfolded } = part.get();
  const detail = details[detailKey(question)];
  if (hidden) {
    return h("aside", { class: "reasons", "aria-label": "Why this one is here" }, h("h2", null, "Read blind"), h("p", { class: "soft dense" }, "Look, then answer. What the model sees, the label and the reasons are shown once you have answered, and when you come back to it."));
  }
  return h(
    "aside",
    { class: ["reasons", unfolded && "unfolded"], "aria-label": "Why this one is here", tabindex: "0" },
    h(
      "div",
      { class: "spread" },
      h("h2", null, "Why this one is here"),
      h("span", { class: "meta reasons-id" }, h("a", { class: "quiet", href: sampleAddress(question.id, { concept: question.concept }) }, question.id), detail ? ` · ${detail.class_label}` : ""),
      detail && detail.reasons.length > 1
        ? h("button", { type: "button", class: "reasons-fold quiet-link", "aria-expanded": unfolded, onclick: () => part.set({ reasons: !unfolded }) }, `${detail.reasons.length} reasons`, icon("down", 12))
        : null,
    ),
    detail
      ? [
          h("ol", { class: "reason-list" }, detail.reasons.map((one, index) => drawReason(one, index, detail, question.concept))),
          detail.reasons.length === 0 ? h("p", { class: "soft dense" }, mark(question.id, question.concept, question.status).status === "plain" ? "It fits the filter; nothing speaks against its label." : "Answered.") : null,
          looksLike(question, detail),
        ]
      : shapes(6),
  );
}
