// What a change does, for the preview, the page after a commit, and the comparison of versions: metrics, flips, readings.
import { h } from "../core/dom.js";
import { icon } from "../core/icons.js";
import { address, sampleAddress } from "../core/router.js";
import { capital, count, many, nouns, percent, plain, probability, signed } from "../core/words.js";
import { noun } from "../core/app.js";
import { beforeAfter, scaleLow } from "./bars.js";
import { certificateLine, verdict } from "./marks.js";
import { tile } from "./tile.js";

/** @typedef {import("../core/api.js").MetricChange} Metric */
/** @typedef {import("../core/api.js").Flip} Flip */

const OUTCOMES = { becomes_right: "becomes right", becomes_wrong: "becomes wrong", stays_wrong: "stays wrong" };

/**
 * Figures before and after, on one scale. A fall is shown as plainly as a rise.
 * @param {string} title
 * @param {Metric[]} metrics
 * @param {number} unchanged how many concepts do not change
 * @param {[string, string]} words for before and after
 */
export function metricLines(title, metrics, unchanged, words) {
  const shares = metrics.filter((one) => !one.unit);
  const low = scaleLow(shares.flatMap((one) => [one.before, one.after]));
  const of = metrics[0]?.of ?? 0;
  return h(
    "section",
    { class: "metrics" },
    h("div", { class: "spread" }, h("h2", null, title), h("span", { class: "meta row" }, h("span", { class: "ba-key" }), words[0], h("span", { class: "ba-key after" }), words[1])),
    metrics.map((one, index) => {
      const difference = one.before !== null && one.after !== null ? one.after - one.before : 0;
      const fall = difference < 0 && (one.unit === "");
      return h(
        "a",
        { class: ["metric", index < 2 && "main-metric"], key: one.name, href: address("pictures", one.query) },
        h("span", { class: "metric-name" }, one.title),
        one.unit ? h("span") : beforeAfter(one.before, one.after, low),
        h("span", { class: "number" }, one.unit ? [`${plain(one.before ?? 0)} → `, h("b", null, `${plain(one.after ?? 0)} ${one.unit}`)] : [percent(one.before, one.of).slice(0, -2), " → ", h("b", null, percent(one.after, one.of))]),
        h("span", { class: ["number metric-change", fall && "fall"] }, difference === 0 ? "±0" : one.unit ? signed(difference) : [fall ? "▼ " : "", `${signed(100 * difference, one.of > 200 ? 1 : 0)} pt`]),
      );
    }),
    h("p", { class: "meta" }, [unchanged ? `The other ${many(unchanged, "concept")}: no change.` : "", low > 0 ? `Scale ${Math.round(100 * low)} to 100 %.` : "", of ? `One ${noun()} is ${(100 / of).toFixed(1)} points.` : ""].filter(Boolean).join(" ")),
  );
}

/** @param {{ becomes_right: number, becomes_wrong: number, stays_wrong: number }} counts */
export function outcomeCounts({ becomes_right: right, becomes_wrong: wrong, stays_wrong: stays }) {
  if (right + wrong + stays === 0) return null;
  return h(
    "p",
    { class: "row outcome-counts" },
    right ? h("span", { class: "row" }, verdict(true), `${count(right)} ${right === 1 ? "becomes" : "become"} right`) : null,
    wrong ? h("span", { class: "row" }, verdict(false), `${count(wrong)} ${wrong === 1 ? "becomes" : "become"} wrong`) : null,
    stays ? h("span", { class: "row" }, verdict(false), `${count(stays)} ${stays === 1 ? "stays" : "stay"} wrong`) : null,
  );
}

/** A picture whose class changes. @param {Flip} flip @param {boolean} [here] */
export function flipCard(flip, here = false) {
  const wasRight = flip.outcome === "becomes_wrong";
  const isRight = flip.outcome === "becomes_right";
  return h(
    "a",
    { class: ["flip", here && "here"], key: flip.id, href: sampleAddress(flip.id), "aria-label": `${flip.id}: from ${flip.before} to ${flip.after}, ${OUTCOMES[flip.outcome]}` },
    flip.thumb ? h("img", { src: flip.picture ?? flip.thumb, alt: "", loading: "lazy" }) : h("span", { class: "flip-record mono" }, flip.id),
    h(
      "span",
      { class: "flip-words" },
      h("span", { class: "flip-class" }, verdict(wasRight), h("s", null, flip.before), h("span", { class: "soft" }, flip.before_probability === null ? "" : probability(flip.before_probability))),
      h("span", { class: "flip-class" }, verdict(isRight), h("b", null, flip.after), h("b", null, flip.after_probability === null ? "" : probability(flip.after_probability))),
      h("span", { class: ["meta", flip.outcome === "becomes_wrong" && "wrong-word"] }, OUTCOMES[flip.outcome]),
      h("span", { class: "meta" }, `label: ${flip.label}`),
      flip.because[0] ? h("span", { class: "meta" }, `${flip.because[0].title} ${probability(flip.because[0].before)} → ${probability(flip.because[0].after)}`) : null,
    ),
  );
}

/** Concept readings that change sides. @param {import("../core/api.js").ReadingChanges[]} readings */
export function readingLines(readings) {
  return readings.map((one) =>
    h(
      "div",
      { class: "reading", key: one.concept },
      h("span", { class: "dense" }, `${one.title}, ${count(one.count)}`),
      h("span", { class: "row dense soft" }, one.becomes_right ? [verdict(true), count(one.becomes_right)] : null, one.becomes_wrong ? [verdict(false), count(one.becomes_wrong)] : null),
      h("div", { class: "tiles" }, one.examples.slice(0, 5).map((ref) => tile({ id: ref.id, source: ref.thumb, href: sampleAddress(ref.id, { concept: one.concept }), words: `${ref.id}, ${ref.label}` })), one.count > 5 ? h("a", { class: "quiet more", href: address("pictures", { ids: one.examples.map((ref) => ref.id).join(","), concept: one.concept }) }, `${count(one.count - 5)} more`) : null),
    ),
  );
}

/** @param {import("../core/api.js").Certificate} certificate @param {import("../core/dom.js").Child} [action] */
export function certificateBox(certificate, action = null) {
  if (certificate.state === "not_certified") return certificateLine("none", [h("b", { class: "word" }, "Not certified. "), certificate.words.replace(/^Not certified\.?\s*/i, ""), " ", action], certificate.leaves_out);
  const word = certificate.state === "none_differ" ? "Certified" : `Certified up to ${certificate.could_differ ?? ""}`.trim();
  return certificateLine(certificate.state === "none_differ" ? "certified" : "up to", [h("b", { class: "word" }, `${word}. `), certificate.words.replace(/^Certified[^.]*\.\s*/i, "")], certificate.leaves_out);
}

/** "6 of 480 validation pictures", for titles. @param {number} number @param {number} of */
export const ofValidation = (number, of) => `${count(number)} of ${count(of)} validation ${nouns(noun())}`;

export { capital, icon };
