// A concept that is a number: what the model reads, what the label says, and a field to try or correct it.
import { h } from "../core/dom.js";
import { diamond, dot } from "../core/icons.js";
import { answer, mark, slice, takeBack } from "../core/app.js";
import { button } from "../components/marks.js";
import { plain } from "../core/words.js";
import { part as sample, setTried } from "./trying.js";

const part = slice("continuous", { open: "", text: "" });

/**
 * @param {string} id
 * @param {import("../core/api.js").Label} label
 * @param {import("../core/api.js").ConceptInfo} info
 */
export function continuousRow(id, label, info) {
  const now = mark(id, label.concept, label.status, label.staged);
  const tried = sample.get().tried[label.concept];
  const { open, text } = part.get();
  const value = Number(text.replace(",", "."));
  const fits = text.trim() !== "" && Number.isFinite(value);
  const close = () => part.set({ open: "", text: "" });
  return h(
    "div",
    { key: label.concept, class: ["continuous-row", tried !== undefined && "tried", now.status === "staged" && "is-staged"] },
    h("span", { class: "bar-name" }, info.title),
    h("span", { class: ["number", label.wrong && "wrong-word"] }, tried !== undefined ? [h("s", null, label.predicted_words), " ", h("b", null, `${plain(Number(tried))} ${info.unit}`.trim())] : label.predicted_words),
    h("span", { class: "number" }, dot(label.label === null ? null : 1), " ", now.status === "staged" ? [h("s", null, label.label_words), " ", diamond(), " ", h("span", { class: "staged-word" }, `${plain(Number(now.value))} ${info.unit}`.trim())] : label.label_words),
    h("button", { type: "button", class: "quiet-link", "aria-expanded": open === label.concept, onclick: () => (open === label.concept ? close() : part.set({ open: label.concept, text: "" })) }, "change"),
    open === label.concept
      ? h(
          "div",
          { class: "continuous-form row" },
          h("label", { class: "labelled" }, h("span", null, `Another value${info.unit ? `, in ${info.unit}` : ""}`), h("input", { class: "field", inputmode: "decimal", value: text, oninput: (/** @type {Event} */ event) => part.set({ text: /** @type {HTMLInputElement} */ (event.target).value }) })),
          button("Try", { disabled: !fits, onclick: () => setTried({ ...sample.get().tried, [label.concept]: value }) }),
          button("Correct the label", { icon: "diamond", disabled: !fits, onclick: () => { answer(id, label.concept, "value", "staged", value); close(); } }),
          now.status === "staged" ? button("Take back", { kind: "quiet", onclick: () => takeBack(id, label.concept) }) : null,
        )
      : null,
  );
}
