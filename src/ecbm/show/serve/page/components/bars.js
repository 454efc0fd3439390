// What the model says, as bars: concepts, classes, parts of a score, before and after. The model left, the label right.
import { h } from "../core/dom.js";
import { diamond, dot, icon } from "../core/icons.js";
import { probability, signed, waterfall } from "../core/words.js";

/** @typedef {import("../core/dom.js").Child} Child */

/**
 * @typedef {object} ConceptBar
 * @property {string} key
 * @property {string} title
 * @property {string} [group] said before the title where its group's heading is not there
 * @property {number | null} predicted between 0 and 1
 * @property {number | null} label 1 present, 0 absent, null missing
 * @property {boolean} wrong
 * @property {number | null} [tried]
 * @property {number | null | undefined} [staged] the label it would get; undefined: nothing staged
 * @property {boolean} [waiting]
 * @property {boolean} [here]
 * @property {boolean} [blind]
 * @property {((value: number) => void) | null} [onTry]
 * @property {(() => void) | null} [onCorrect]
 */

/** @param {number | null | undefined} label */
export const labelWord = (label) => (label === null || label === undefined ? "no label" : label >= 0.5 ? "present" : "absent");

/** @param {number} share @param {string[]} [extra] */
function fill(share, extra = []) {
  return h("span", { class: ["bar-fill", ...extra], style: { width: `${Math.max(0, Math.min(100, 100 * share))}%` } });
}

/** Where on a track somebody pressed. @param {PointerEvent | MouseEvent} event */
function shareAt(event) {
  const box = /** @type {Element} */ (event.currentTarget).getBoundingClientRect();
  return Math.max(0, Math.min(1, (event.clientX - box.x) / box.width));
}

/** One concept of one picture. @param {ConceptBar} bar */
export function conceptBar(bar) {
  const { title, predicted, label, wrong, tried = null, staged, here } = bar;
  const isTried = tried !== null && tried !== undefined;
  const isStaged = staged !== undefined;
  const differs = wrong && !isStaged && !isTried;
  const says = `${title}: the model sees ${probability(predicted)}${isTried ? `, tried at ${probability(tried)}` : ""}`;
  const inside = [
    fill(predicted ?? 0, differs ? ["hatched"] : []),
    isTried ? h("span", { class: "bar-tried", style: { width: `${100 * tried}%` } }) : null,
    h("span", { class: "bar-tick" }),
  ];
  const track = bar.onTry
    ? h(
        "button",
        {
          type: "button", class: "bar-track", "aria-label": `${says}. Try another value`, title: "try a value: nothing is kept",
          "data-row": bar.key,
          onclick: (/** @type {MouseEvent} */ event) => bar.onTry?.(event.detail === 0 ? (isTried ? 1 - Math.round(tried) : 1 - Math.round(predicted ?? 0)) : snapped(shareAt(event))),
        },
        inside,
      )
    : h("span", { class: "bar-track", role: "img", "aria-label": says }, inside);
  const labelInside = isStaged
    ? [dot(label), h("span", { class: "soft" }, "→"), dot(staged, "staged"), h("span", { class: "staged-word" }, labelWord(staged))]
    : [dot(label), h("span", { class: "bar-word" }, labelWord(label))];
  return h(
    "div",
    { key: bar.key, class: ["concept-bar", differs && "differs", isTried && "tried", isStaged && "is-staged", here && "here"] },
    h("span", { class: "bar-name" }, bar.group ? h("span", { class: "bar-group" }, `${bar.group} `) : null, title),
    track,
    h("span", { class: "bar-value" }, isTried ? [h("s", null, probability(predicted)), " ", h("b", null, probability(tried))] : probability(predicted)),
    h("span", { class: "bar-sign" }, isStaged ? [diamond(), h("span", { class: "unseen" }, "staged")] : differs ? [icon("unequal", 13), h("span", { class: "unseen" }, "model and label differ")] : null),
    bar.onCorrect
      ? h("button", { type: "button", class: "bar-label", "aria-label": `${title}: ${isStaged ? `staged as ${labelWord(staged)}. Take it back` : `labelled ${labelWord(label)}. Correct it`}`, title: isStaged ? "take the correction back" : "correct the label: staged", onclick: bar.onCorrect }, labelInside)
      : h("span", { class: "bar-label" }, labelInside),
    bar.waiting ? h("span", { class: "bar-waiting meta" }, "not stored, trying again") : null,
  );
}

/** Near an end the end is meant. @param {number} share */
function snapped(share) {
  if (share < 0.12) return 0;
  return share > 0.88 ? 1 : Math.round(share * 20) / 20;
}

/**
 * A class's probability, and under it what was tried.
 * @param {{ name: string, before: number | null, after: number | null, label: boolean, first: boolean }} row
 */
export function classBar({ name, before, after, label, first }) {
  return h(
    "div",
    { class: ["class-bar", first && "first"], key: name },
    h("span", { class: "bar-name" }, name, label ? [" ", dot(1), h("span", { class: "unseen" }, "the label")] : null),
    h(
      "span",
      { class: "class-bars", role: "img", "aria-label": after === null ? `${name} ${probability(before)}` : `${name} ${probability(before)}, as tried ${probability(after)}` },
      h("span", { class: "bar-fill", style: { width: `${100 * (before ?? 0)}%` } }),
      after === null ? null : h("span", { class: "bar-tried", style: { width: `${100 * after}%` } }),
    ),
    h("span", { class: "number" }, after === null ? probability(before) : [h("s", null, probability(before)), " ", h("b", null, probability(after))]),
  );
}

/** @typedef {import("../core/api.js").ClassScore} ClassScore */

/**
 * How each concept pushes a class: parts by size that add up to the score, as they are shown.
 * @param {ClassScore} score
 * @param {ClassScore | null} tried
 * @param {string[]} always concepts that get a line however small
 * @param {number} shown
 * @param {string} [title] of the last line
 */
export function scoreChart(score, tried, always, shown, title = "Sum: the score") {
  const ordered = [...score.parts].sort((one, other) => Math.abs(other.adds) - Math.abs(one.adds)).map((part) => part.concept);
  const wanted = new Set([...ordered.slice(0, shown), ...always]);
  const named = ordered.filter((concept) => wanted.has(concept));
  const now = waterfall(score, named);
  const then = tried ? waterfall(tried, named) : null;
  const ends = [0, now.start];
  for (const line of now.lines) ends.push((ends.at(-1) ?? 0) + line.adds);
  ends.push(now.sum);
  const spread = then ? [then.sum, ...then.lines.map((line, index) => ends[index + 1] + line.adds)] : [];
  const low = Math.min(0, ...ends, ...spread);
  const high = Math.max(0, ...ends, ...spread);
  const scale = (/** @type {number} */ value) => (100 * (value - low)) / (high - low || 1);
  const zero = `${scale(0)}%`;
  let from = 0;

  /** @param {string} name @param {number} adds @param {number | null} instead @param {string} key */
  function line(name, adds, instead, key) {
    const start = from;
    from += adds;
    const changed = instead !== null && instead !== adds;
    return h(
      "div",
      { class: ["score-line", changed && "changed"], key },
      h("span", { class: "score-name" }, name),
      h(
        "span",
        { class: "score-track", style: { "--zero": zero, "--end": `${scale(from)}%` } },
        h("span", { class: ["score-bar", adds < 0 && "away"], style: { left: `${scale(Math.min(start, from))}%`, width: `${Math.abs(scale(from) - scale(start))}%` } }),
        changed ? h("span", { class: "score-tried", style: { left: `${scale(Math.min(start, start + instead))}%`, width: `${Math.abs(scale(start + instead) - scale(start))}%` } }) : null,
      ),
      h("span", { class: "number" }, changed ? [h("s", null, signed(adds)), " ", h("b", null, signed(instead))] : signed(adds)),
    );
  }

  const rows = [
    line("starting point", now.start, then ? then.start : null, "start"),
    ...now.lines.map((part, index) => line(part.title, part.adds, then ? then.lines[index].adds : null, part.concept)),
    line(now.rest > 0 ? `${now.rest} others, rounding` : "rounding", now.others, then ? then.others : null, "others"),
  ];
  const sum = h(
    "div",
    { class: ["score-line", "sum"], key: "sum" },
    h("span", { class: "score-name" }, title),
    h(
      "span",
      { class: "score-track", style: { "--zero": zero, "--end": zero } },
      h("span", { class: ["score-bar", now.sum < 0 && "away"], style: { left: `${scale(Math.min(0, now.sum))}%`, width: `${Math.abs(scale(now.sum) - scale(0))}%` } }),
      then && then.sum !== now.sum ? h("span", { class: "score-tried", style: { left: `${scale(Math.min(0, then.sum))}%`, width: `${Math.abs(scale(then.sum) - scale(0))}%` } }) : null,
    ),
    h("span", { class: "number" }, then && then.sum !== now.sum ? [h("s", null, now.sum.toFixed(2).replace("-", "−")), " ", h("b", null, then.sum.toFixed(2).replace("-", "−"))] : now.sum.toFixed(2).replace("-", "−")),
  );
  return h("div", { class: "score-chart" }, rows, sum);
}

/**
 * Before (open) and after (filled) on one track.
 * @param {number | null} before
 * @param {number | null} after
 * @param {number} low of the scale
 */
export function beforeAfter(before, after, low) {
  const place = (/** @type {number | null} */ value) => `${Math.max(0, Math.min(100, (100 * ((value ?? low) - low)) / (1 - low || 1)))}%`;
  const from = Math.min(before ?? 0, after ?? 0);
  const to = Math.max(before ?? 0, after ?? 0);
  return h(
    "span",
    { class: "before-after", "aria-hidden": "true" },
    h("span", { class: "ba-line", style: { left: place(from), right: `calc(100% - ${place(to)})` } }),
    h("span", { class: "ba-dot before", style: { left: place(before) } }),
    h("span", { class: "ba-dot after", style: { left: place(after) } }),
  );
}

/** The low end of a scale that holds all values, on a round figure. @param {(number | null)[]} values */
export function scaleLow(values) {
  const known = values.filter((value) => value !== null).map(Number);
  return known.length ? Math.max(0, Math.floor(20 * Math.min(...known, 0.95) - 0.2) / 20) : 0;
}

/**
 * A weight to the right or left of a middle line: solid towards, hollow away.
 * @param {string} name @param {number} weight @param {number} largest
 */
export function pushBar(name, weight, largest) {
  const width = (50 * Math.abs(weight)) / (largest || 1);
  return h(
    "div",
    { class: "push-line", key: name },
    h("span", { class: "score-name" }, name),
    h("span", { class: "push-track" }, h("span", { class: ["score-bar", weight < 0 && "away"], style: { left: `${weight < 0 ? 50 - width : 50}%`, width: `${width}%` } })),
    h("span", { class: "number" }, signed(weight)),
  );
}

/** A share in grey: neither model nor label, a count. @param {number} share */
export const greyBar = (share) => h("span", { class: "grey-bar", "aria-hidden": "true" }, h("span", { style: { width: `${100 * Math.max(0, Math.min(1, share))}%` } }));
