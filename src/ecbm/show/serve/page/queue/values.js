// Answers where "present" and "absent" do not fit: a class, a value of a categorical concept, a grade, a number.
import { h } from "../core/dom.js";
import { diamond } from "../core/icons.js";
import { isValue } from "../core/words.js";
import { mark, server } from "../core/app.js";
import { button, cap } from "../components/marks.js";
import { concept } from "../components/filters.js";

/** @typedef {import("./questions.js").Question} Question */

/** @param {Question} question */
const info = (question) => (question.concept === null ? null : concept(question.concept));

/** What can be answered: the classes, or the values of the concept. @param {Question} question @returns {string[]} */
export const valuesOf = (question) => (question.concept === null ? server().classes : (info(question)?.values ?? []));

/** A grade is answered by its own digit; other values by their place. @param {string[]} values @param {number} index */
export function answerKey(values, index) {
  if (values.every((value) => /^\d$/.test(value))) return values[index];
  return index < 9 ? String(index + 1) : null;
}

/** Whether a value is what the label says: answering it keeps the label. @param {Question} question @param {string | number} value */
export function isLabel(question, value) {
  return question.label_words === (info(question)?.type === "ordinal" ? `grade ${value}` : String(value));
}

/**
 * @param {Question} question
 * @param {boolean} hidden
 * @param {(question: Question, value: string | number) => void} give
 * @param {() => void} unsure
 */
export function valueAnswers(question, hidden, give, unsure) {
  const about = info(question);
  if (about?.type === "continuous" || (question.concept === null && server().target === "number")) return numberAnswer(question, about?.unit ?? server().unit, give, unsure);
  const given = mark(question.id, question.concept, question.status, question.staged);
  const values = valuesOf(question);
  return h(
    "div",
    { class: "answers many", role: "group", "aria-label": "Answers" },
    values.map((value, index) => {
      const keeps = isLabel(question, value);
      const said = given.status === "staged" ? isValue(given.value, value) : given.status === "kept" && keeps;
      const key = answerKey(values, index);
      return h(
        "button",
        { key: value, type: "button", class: ["answer", said && "given"], "aria-pressed": said, onclick: () => give(question, value) },
        key ? cap(key) : null,
        h("span", null, h("b", null, about?.type === "ordinal" ? `Grade ${value}` : value), hidden ? null : h("span", { class: ["answer-words", !keeps && "staged-word"] }, keeps ? "keeps the label" : [diamond(8), "corrects"])),
      );
    }),
    h("button", { key: "unsure", type: "button", class: ["answer", given.status === "unsure" && "given"], "aria-pressed": given.status === "unsure", onclick: unsure }, cap("U"), h("span", null, h("b", null, "Unsure"), h("span", { class: "answer-words" }, "asks somebody else"))),
  );
}

/** @param {Question} question @param {string} unit @param {(question: Question, value: string | number) => void} give @param {() => void} unsure */
function numberAnswer(question, unit, give, unsure) {
  const given = mark(question.id, question.concept, question.status, question.staged);
  /** @param {Event} event */
  const submit = (event) => {
    event.preventDefault();
    const field = /** @type {HTMLInputElement} */ (/** @type {HTMLFormElement} */ (event.target).elements.namedItem("number"));
    const value = Number(field.value.replace(",", "."));
    if (field.value.trim() === "" || !Number.isFinite(value)) return;
    give(question, value);
    field.value = "";
  };
  return h(
    "form",
    { class: "answers number-answer", onsubmit: submit },
    h("label", { class: "labelled" }, h("span", null, `The right value${unit ? `, in ${unit}` : ""}`), h("input", { class: "field", name: "number", inputmode: "decimal", autocomplete: "off" })),
    button("Stage it", { type: "submit", icon: "diamond" }),
    button("Unsure", { cap: "U", onclick: unsure }),
    given.status === "staged" && given.value !== null ? h("p", { class: "meta staged-word" }, diamond(8), ` staged as ${given.value} ${unit}`.trimEnd()) : null,
  );
}
