// Every component with its states on one page, drawn from made-up values: for looking at, and for the accessibility check.
import { h } from "../core/dom.js";
import { diamond, icon } from "../core/icons.js";
import { button, certificateLine, certifiedChip, chip, empty, trouble, working, wrongChip } from "./marks.js";
import { beforeAfter, conceptBar, scoreChart } from "./bars.js";
import { tile } from "./tile.js";

const quiet = () => {};
/** A grey square stands for a picture. */
const PICTURE = "data:image/svg+xml," + encodeURIComponent('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 8 8"><rect width="8" height="8" fill="#9fb3bc"/><circle cx="4" cy="4" r="2" fill="#5d7d8a"/></svg>');

/** @param {string} title @param {...import("../core/dom.js").Child} inside */
const group = (title, ...inside) => h("section", { class: "sheet-group", key: title }, h("h2", null, title), inside);

const SCORE = { name: "A", probability: 0.7, score: 1.93, start: -0.18, parts: [1.69, 0.9, -0.45, -0.04, 0.013].map((adds, index) => ({ concept: `c${index}`, title: `Concept ${index + 1}`, value: 1, weight: adds, adds })) };

/** @type {import("./frame.js").Page} */
export const sheet = {
  name: "components",
  rail: "",
  title: () => "Components",
  needsModel: false,
  draw: () =>
    h(
      "div",
      { class: "page sheet-page" },
      group(
        "Concept bar",
        conceptBar({ key: "1", title: "Agree", predicted: 0.94, label: 1, wrong: false, onTry: quiet, onCorrect: quiet }),
        conceptBar({ key: "2", title: "Agree, absent", predicted: 0.03, label: 0, wrong: false, onTry: quiet, onCorrect: quiet }),
        conceptBar({ key: "3", title: "Disagree", predicted: 0.73, label: 0, wrong: true, onTry: quiet, onCorrect: quiet }),
        conceptBar({ key: "4", title: "Label missing", predicted: 0.41, label: null, wrong: false, onTry: quiet, onCorrect: quiet }),
        conceptBar({ key: "5", title: "Tried", predicted: 0.39, label: 0, wrong: false, tried: 1, onTry: quiet, onCorrect: quiet }),
        conceptBar({ key: "6", title: "Staged", predicted: 0.69, label: 0, wrong: true, staged: 1, onTry: quiet, onCorrect: quiet }),
        conceptBar({ key: "7", title: "Chosen", predicted: 0.94, label: 1, wrong: false, here: true, onTry: quiet, onCorrect: quiet }),
      ),
      group("Contribution bar", scoreChart(SCORE, { ...SCORE, score: 1.4, parts: SCORE.parts.map((part, index) => (index === 2 ? { ...part, adds: -0.98 } : part)) }, ["c2"], 4)),
      group("Tile", h("div", { class: "tiles sheet-tiles" }, /** @type {const} */ ([[null, "plain"], ["staged", "staged"], ["kept", "kept"], ["unsure", "unsure"], ["wrong", "wrong"]]).map(([badge, under]) => tile({ id: under, source: PICTURE, badge, under })), tile({ id: "here", source: PICTURE, here: true, under: "here" }), tile({ id: "waiting", source: PICTURE, badge: "staged", waiting: true }), tile({ id: "no picture", source: "/page/none.png", under: "no picture" }), tile({ id: "record-17", source: null, under: "record" }), tile({ id: "erased", source: null, erased: true, under: "erased" }))),
      group("Chips and marks", h("div", { class: "row" }, h("span", { class: "chip staged" }, diamond(), "47 staged"), wrongChip("read as B"), certifiedChip(), chip("undone"), chip("current")), h("div", { class: "sheet-line" }, beforeAfter(0.87, 0.92, 0.8))),
      group("Certificate line", certificateLine("certified", [h("b", { class: "word" }, "Certified. "), "Retraining both heads would decide none of the 240 validation pictures differently."], "The picture reader stays as it is and is not covered."), certificateLine("up to", [h("b", { class: "word" }, "Certified up to 3. "), "Retraining both heads would decide at most 3 of 240 differently."]), certificateLine("none", [h("b", null, "Not certified. "), "This method comes without a proof."]), certificateLine("proving", "Proving …")),
      group("Buttons", h("div", { class: "row" }, button("Start", { kind: "ink", cap: "Q" }), button("Commit version 6", { kind: "staged", icon: "diamond" }), button("Preview", { cap: "P" }), button("Quiet", { kind: "quiet" }), button("Off", { disabled: true }), h("button", { type: "button", class: "button icon-only", "aria-label": "close" }, icon("close")))),
      group("Empty", empty("Nothing suspicious is left here.", "Choose another concept, or look at what you have staged.", button("Other concepts"), button("Preview"))),
      group("Trouble", trouble("Not committed: the disk is full.", "The model is still version 5; your 47 labels are safe. Free 20 MB, then try again.", button("Try again", { kind: "ink" }), button("Save the edit as a file"))),
      group("Working", working({ title: "Committing version 6", step: "2 of 4: solving the concept head", share: 0.3, seconds: 4, expected: 14, cancel: quiet })),
    ),
};
