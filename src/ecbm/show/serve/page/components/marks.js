// The small signs everything else is made of: keys, chips, buttons, empty states.
import { h } from "../core/dom.js";
import { diamond, icon, noSeal, seal } from "../core/icons.js";
import { caps } from "../core/keys.js";
import { many } from "../core/words.js";

/** @typedef {import("../core/dom.js").Child} Child */

/** @param {...string} names */
export const cap = (...names) => names.map((name) => h("kbd", null, name));

/** The keys a tray or a legend names. @param {import("../core/keys.js").Key[]} keys */
export function keyLine(keys) {
  /** @type {{ words: string, caps: string[] }[]} */
  const lines = [];
  for (const key of keys) {
    const last = lines.at(-1);
    if (last && last.words === key.words) last.caps.push(...caps(key));
    else lines.push({ words: key.words, caps: caps(key) });
  }
  return lines.map((line) => h("span", { class: "key-line", key: line.words }, cap(...line.caps), ` ${line.words}`));
}

/**
 * @param {string} words
 * @param {Record<string, any>} props `kind`: "ink", "staged", "plain" (the default) or "quiet"; `cap` a key's cap
 */
export function button(words, { kind = "plain", cap: shown, icon: name, ...props } = {}) {
  return h(
    "button",
    { type: "button", ...props, class: ["button", kind, props.class] },
    name === "diamond" ? diamond() : name ? icon(name, 14) : null,
    h("span", null, words),
    shown ? cap(...[shown].flat()) : null,
  );
}

/** A link drawn as a button. @param {string} words @param {Record<string, any>} props */
export function linkButton(words, { kind = "plain", cap: shown, icon: name, ...props }) {
  return h(
    "a",
    { ...props, class: ["button", kind, props.class] },
    name === "diamond" ? diamond() : name ? icon(name, 14) : null,
    h("span", null, words),
    shown ? cap(...[shown].flat()) : null,
  );
}

/** @param {number} number */
export const stagedChip = (number) => h("span", { class: "chip staged" }, diamond(), `${many(number, "label")} staged`);

/** @param {...Child} words */
export const wrongChip = (...words) => h("span", { class: "chip wrong" }, icon("unequal", 12), words);

export const certifiedChip = () => h("span", { class: "certified-word" }, seal(14), "certified");

/** @param {...Child} words */
export const chip = (...words) => h("span", { class: "chip plain" }, words);

/** Right or wrong, by shape: a tick in a disc, a cross in a square. @param {boolean} right */
export function verdict(right) {
  return h(
    "span",
    { class: ["verdict", right ? "right" : "wrong"], role: "img", "aria-label": right ? "right" : "wrong" },
    icon(right ? "check" : "close", 10),
  );
}

/**
 * An empty state says what to do next.
 * @param {string} title
 * @param {string} words
 * @param {...Child} actions
 */
export function empty(title, words, ...actions) {
  return h(
    "div",
    { class: "notice", role: "status" },
    h("p", { class: "notice-title" }, title),
    words ? h("p", null, words) : null,
    actions.length ? h("div", { class: "actions" }, actions) : null,
  );
}

/**
 * Something of the system went wrong: ink and a triangle, never rust.
 * @param {string} title
 * @param {string} words
 * @param {...Child} actions
 */
export function trouble(title, words, ...actions) {
  return h(
    "div",
    { class: "notice", role: "alert" },
    h("p", { class: "notice-title" }, icon("warning"), title),
    words ? h("p", null, words) : null,
    actions.length ? h("div", { class: "actions" }, actions) : null,
  );
}

/**
 * The certificate in one sentence, with what it leaves out in the same box.
 * @param {"certified" | "up to" | "none" | "proving"} state
 * @param {Child} sentence
 * @param {Child} [limits]
 */
export function certificateLine(state, sentence, limits) {
  const sign = { certified: seal(20), "up to": seal(20), none: noSeal(18), proving: icon("clock", 18) }[state];
  const proven = state === "certified" || state === "up to";
  return h(
    "div",
    { class: ["certificate", proven ? "proven" : "unproven"] },
    sign,
    h("div", null, h("p", null, sentence), limits ? h("p", { class: "meta" }, limits) : null),
  );
}

/**
 * Progress that names its step and can be cancelled until the write.
 * @param {{ title: string, step: string, share: number | null, seconds: number, expected?: number | null, cancel?: (() => void) | null }} work
 */
export function working({ title, step, share, seconds, expected, cancel }) {
  const elapsed = `${Math.round(seconds)}\u202fs${expected ? ` of about ${Math.max(1, Math.round(expected))}\u202fs` : ""}`;
  return h(
    "div",
    { class: "notice working" },
    h("p", { class: "notice-title spread" }, title, h("span", { class: "meta" }, elapsed)),
    progressBar(share),
    h(
      "div",
      { class: "spread" },
      h("span", { class: "dense soft", role: "status" }, step),
      cancel ? button("Cancel", { cap: "Esc", onclick: cancel }) : null,
    ),
  );
}

/** @param {number | null} share null where nobody knows how far it is */
export function progressBar(share) {
  return h(
    "div",
    {
      class: ["progress", share === null && "unknown"], role: "progressbar", "aria-label": "progress",
      "aria-valuenow": share === null ? undefined : Math.round(100 * share), "aria-valuemin": 0, "aria-valuemax": 100,
    },
    h("div", { style: { width: `${100 * (share ?? 0.3)}%` } }),
  );
}

/** Grey shapes for the first second of a wait. @param {number} lines */
export function shapes(lines) {
  return h("div", { class: "shapes", "aria-hidden": "true" }, Array.from({ length: lines }, () => h("div", { class: "shape" })));
}
