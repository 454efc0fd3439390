// Who is at this browser, colours, another browser's way in; on a small screen also the pages that have no tab.
import { h } from "../core/dom.js";
import { icon } from "../core/icons.js";
import { address } from "../core/router.js";
import { change, server, slice, store } from "../core/app.js";
import { preferences } from "../core/preferences.js";
import { post } from "../core/server.js";

const part = slice("menu", { name: "", address: "" });

async function rename() {
  const name = part.get().name.trim();
  if (!name || name === server().person) return;
  const state = await change(() => post("/api/person", { name }, "PUT"));
  if (state) store.set({ server: state });
}

async function invite() {
  const invitation = await change(() => post("/api/invitations", {}));
  if (invitation) part.set({ address: invitation.address });
}

/** @param {"auto" | "light" | "dark"} theme */
function setTheme(theme) {
  const wanted = { ...store.get().preferences, theme };
  preferences.keep(wanted);
  store.set({ preferences: wanted });
}

const close = () => store.set({ over: "" });

export function menu() {
  const { theme } = store.get().preferences;
  const { address: invited } = part.get();
  return h(
    "div",
    { class: "more-menu", key: "menu", role: "group", "aria-label": "Name, colours, keys", ref: (/** @type {HTMLElement} */ element) => queueMicrotask(() => element.querySelector("input")?.focus()) },
    h("label", { class: "labelled" }, h("span", null, "Your name, kept with what you answer and commit"), h("input", {
      class: "field", value: part.get().name || server().person, maxlength: 100, autocomplete: "name",
      oninput: (/** @type {Event} */ event) => part.set({ name: /** @type {HTMLInputElement} */ (event.target).value }),
      onchange: rename,
      onkeydown: (/** @type {KeyboardEvent} */ event) => event.key === "Enter" && (rename(), close()),
    })),
    h("div", { class: "labelled" }, h("span", null, "Colours"), h("div", { class: "segments" }, /** @type {const} */ ([["auto", "as the system"], ["light", "light"], ["dark", "dark"]]).map(([name, words]) =>
      h("button", { type: "button", "aria-pressed": theme === name, onclick: () => setTheme(name) }, words)))),
    h("a", { href: address("audit"), onclick: close }, icon("audit"), "Audit"),
    h("a", { href: address("forget"), onclick: close }, icon("forget"), "Forget somebody"),
    invited
      ? h("label", { class: "labelled" }, h("span", null, "Opens the workbench once, in another browser"), h("input", { class: "field mono", value: invited, readOnly: true, onfocus: (/** @type {Event} */ event) => /** @type {HTMLInputElement} */ (event.target).select() }))
      : h("button", { type: "button", onclick: invite }, icon("people"), "Address for another browser"),
    h("button", { type: "button", onclick: () => store.set({ over: "help" }) }, icon("queue"), "All keys"),
  );
}
