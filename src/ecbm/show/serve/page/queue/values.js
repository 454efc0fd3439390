// Answers where "present" and "absent" do not fit: a class, a value of a categorical concept, a grade, a number.
import { h } from "../core/dom.js";
import { diamond } from "../core/icons.js";
import { server } from "../core/app.js";
import { button, cap } from "../components/marks.js";
import { concept } from "../components/filters.js";

/** @typedef {import("./questions.js").Question} Question */

/**
 * @param {Question} question
 * @param {boolean} hidden
 * @param {(question: Question, value: string | number) => void} give
 * @param {() => void} unsure
 */
export function valueAnswers(question, hidden, give, unsure) {
  const info = question.concept === null ? null : concept(question.concept);
  if (info?.type === "continuous" || (question.concept === null && server().target === "number")) return numberAnswer(question, info?.unit ?? server().unit, give, unsure);
  const values = question.concept === null ? server().classes : (info?.values ?? []);
  return h(
    "div",
    { class: "answers many", role: "group", "aria-label": "Answers" },
    values.map((value, index) =>
      h(
        "button",
        { key: value, type: "button", class: "answer", onclick: () => give(question, value) },
        index < 9 ? cap(String(index + 1)) : null,
        h("span", null, h("b", null, value), hidden ? null : h("span", { class: ["answer-words", value !== question.label_words && "staged-word"] }, value === question.label_words ? "keeps the label" : [diamond(8), "corrects"])),
      ),
    ),
    h("button", { key: "unsure", type: "button", class: "answer", onclick: unsure }, cap("U"), h("span", null, h("b", null, "Unsure"), h("span", { class: "answer-words" }, "asks somebody else"))),
  );
}

/** @param {Question} question @param {string} unit @param {(question: Question, value: string | number) => void} give @param {() => void} unsure */
function numberAnswer(question, unit, give, unsure) {
  /** @param {Event} event */
  const submit = (event) => {
    event.preventDefault();
    const field = /** @type {HTMLInputElement} */ (/** @type {HTMLFormElement} */ (event.target).elements.namedItem("number"));
    const value = Number(field.value.replace(",", "."));
    if (field.value.trim() !== "" && Number.isFinite(value)) give(question, value);
    field.value = "";
  };
  return h(
    "form",
    { class: "answers number-answer", onsubmit: submit },
    h("label", { class: "labelled" }, h("span", null, `The right value${unit ? `, in ${unit}` : ""}`), h("input", { class: "field", name: "number", inputmode: "decimal", autocomplete: "off" })),
    button("Stage it", { type: "submit", icon: "diamond" }),
    button("Unsure", { cap: "U", onclick: unsure }),
  );
}
