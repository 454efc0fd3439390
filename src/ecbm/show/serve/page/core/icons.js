// Icons as strokes on a grid of 16. They take the colour of the text beside them.
import { h } from "./dom.js";

/** @type {Record<string, string>} */
const STROKES = {
  logo: "M1.5 2.5h13L8.8 8l5.7 5.5h-13L7.2 8z",
  overview: "M2.5 2.5h4.2v4.2H2.5zM9.3 2.5h4.2v4.2H9.3zM2.5 9.3h4.2v4.2H2.5zM9.3 9.3h4.2v4.2H9.3z",
  queue: "M2 3.5h12M2 8h7M2 12.5h5M9 11.5l2 2 3.5-4",
  pictures: "M2 3h12v10H2zM2 11l3.5-3 3 2.5L10.5 9 14 11.5M10.6 5.8h.1",
  concepts: "M2 4h5M11 4h3M2 8h9M14 8h0M2 12h4M10 12h4M9 2.9v2.2M12.6 6.9v2.2M8 10.9v2.2",
  history: "M4 2.5v11M4 4h0M7.5 4H14M7.5 8H12M7.5 12.5H14M2.7 4a1.3 1.3 0 1 0 2.6 0 1.3 1.3 0 1 0-2.6 0M2.7 12a1.3 1.3 0 1 0 2.6 0 1.3 1.3 0 1 0-2.6 0",
  audit: "M3.5 1.8h6l3 3v9.4h-9zM9.5 1.8v3h3M5.8 8h4.4M5.8 11h4.4",
  forget: "M2.5 4h11M6 4V2.5h4V4M4 4l.6 9.5h6.8L12 4M6.7 6.8v4M9.3 6.8v4",
  search: "M10.2 10.2 14 14M11.5 7a4.5 4.5 0 1 1-9 0 4.5 4.5 0 0 1 9 0z",
  undo: "M5.5 3 2.5 6l3 3M2.5 6H10a3.5 3.5 0 0 1 0 7H7",
  redo: "m10.5 3 3 3-3 3M13.5 6H6a3.5 3.5 0 0 0 0 7h3",
  down: "m4 6.2 4 4 4-4",
  left: "m10 3.5-4.5 4.5 4.5 4.5",
  right: "m6 3.5 4.5 4.5L6 12.5",
  close: "m3.8 3.8 8.4 8.4M12.2 3.8l-8.4 8.4",
  check: "m2.8 8.5 3.4 3.5 7-8",
  warning: "M8 2.2 14.5 13.5h-13zM8 6.5v3.4M8 11.6h0",
  hand: "M4.2 8.5V4.2a1 1 0 0 1 2 0V7.5 2.8a1 1 0 0 1 2 0V7.5 3.4a1 1 0 0 1 2 0v4.6-2.6a1 1 0 0 1 2 0v4.5c0 2.7-1.6 4.3-4.2 4.3-2.2 0-3.2-1-4-2.6L2.4 9.4a1 1 0 0 1 1.8-.9z",
  clock: "M14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0zM8 4.5V8l2.5 1.5",
  arrow: "M2.5 8h11M9.5 4l4 4-4 4",
  more: "M3 8h.1M8 8h.1M13 8h.1",
  print: "M4.5 6V2h7v4M4.5 12H2.5V6h11v6h-2M4.5 9.8h7V14h-7z",
  plus: "M8 3v10M3 8h10",
  minus: "M3 8h10",
  unequal: "M3 6h10M3 10h10M10.5 2.5l-5 11",
  light: "M8 5.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6zM8 1v1.6M8 13.4V15M1 8h1.6M13.4 8H15M3 3l1.1 1.1M11.9 11.9 13 13M13 3l-1.1 1.1M4.1 11.9 3 13",
  table: "M2 3h12v10H2zM2 6.3h12M2 9.6h12M6.5 6.3V13",
  people: "M6 7.5a2.3 2.3 0 1 0 0-4.6 2.3 2.3 0 0 0 0 4.6zM1.8 13c0-2.4 1.8-4 4.2-4s4.2 1.6 4.2 4M10.5 3.1a2.3 2.3 0 0 1 0 4.3M12 9.4c1.4.6 2.3 1.9 2.3 3.6",
};

/**
 * @param {string} name
 * @param {number} [size]
 */
export function icon(name, size = 16) {
  return h(
    "svg",
    { class: ["icon", `icon-${name}`], viewBox: "0 0 16 16", width: size, height: size, "aria-hidden": "true" },
    h("path", { d: STROKES[name] }),
  );
}

/** A scalloped seal: stands only beside the word "certified". @param {number} [size] */
export function seal(size = 16) {
  const points = [];
  for (let index = 0; index < 48; index += 1) {
    const radius = 8.8 + 0.75 * Math.cos((index / 48) * 2 * Math.PI * 8);
    const angle = (index / 48) * 2 * Math.PI;
    points.push(`${(10 + radius * Math.sin(angle)).toFixed(2)} ${(10 - radius * Math.cos(angle)).toFixed(2)}`);
  }
  return h(
    "svg",
    { class: "icon seal", viewBox: "0 0 20 20", width: size, height: size, "aria-hidden": "true" },
    h("path", { d: `M${points.join("L")}Z` }),
    h("path", { d: "m6.2 10.2 2.7 2.8 5-6" }),
  );
}

/** An open, dashed ring: no proof. @param {number} [size] */
export function noSeal(size = 16) {
  return h(
    "svg",
    { class: "icon", viewBox: "0 0 16 16", width: size, height: size, "aria-hidden": "true" },
    h("circle", { cx: 8, cy: 8, r: 6.2, "stroke-dasharray": "3 2.4" }),
  );
}

/** The violet diamond: staged, not applied. @param {number} [size] */
export function diamond(size = 10) {
  return h(
    "svg",
    { class: "diamond", viewBox: "0 0 10 10", width: size, height: size, "aria-hidden": "true" },
    h("path", { d: "M5 .6 9.4 5 5 9.4.6 5z" }),
  );
}

/**
 * The label's dot: filled present, open absent, dashed missing.
 * @param {boolean | number | null | undefined} value
 * @param {string} [extra] "staged" paints it violet
 */
export function dot(value, extra = "") {
  const state = value === null || value === undefined ? "missing" : Number(value) >= 0.5 ? "present" : "absent";
  return h(
    "svg",
    { class: ["dot", state, extra], viewBox: "0 0 12 12", width: 12, height: 12, "aria-hidden": "true" },
    h("circle", { cx: 6, cy: 6, r: state === "present" ? 5.6 : 4.7 }),
  );
}
