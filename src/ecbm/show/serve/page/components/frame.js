// What stands around every page: rail, header, tray, tabs, and what may lie over it.
import { h } from "../core/dom.js";
import { diamond, icon } from "../core/icons.js";
import { address } from "../core/router.js";
import { capital, count, initials, nouns, when } from "../core/words.js";
import { move, noun, store } from "../core/app.js";
import { button, keyLine, linkButton, trouble } from "./marks.js";
import { find } from "./find.js";
import { help } from "./help.js";
import { menu } from "./menu.js";

/** @typedef {import("../core/dom.js").Child} Child */
/**
 * A page, as data and functions. Folders mirror the pages; this is all main.js knows of them.
 * @typedef {object} Page
 * @property {string} name first part of its address
 * @property {() => string} title
 * @property {() => Child} draw
 * @property {() => Child} [extra] beside the title
 * @property {() => import("../core/keys.js").Key[]} [keys]
 * @property {(route: import("../core/router.js").Route) => void} [enter] the address changed to here
 * @property {() => void} [refresh] the model or what is staged changed
 * @property {() => void} [leave]
 * @property {() => boolean} [fixed] whether its parts scroll, not the page
 * @property {string} [note] in the tray
 * @property {boolean} [quiet] no preview button in the tray
 * @property {string} [rail] the link of the rail it belongs to
 * @property {boolean} [needsModel]
 */

const LINKS = ["overview", "queue", "pictures", "concepts", "history"];

/** @param {string} name */
function linkTitle(name) {
  if (name === "pictures") return capital(nouns(noun()));
  return name === "forget" ? "Forget somebody" : capital(name);
}

/** @param {string} name */
function railCount(name) {
  const state = store.get().server;
  if (!state) return null;
  if (name === "queue") return state.suspicious === null ? null : count(state.suspicious);
  if (name === "pictures") return count(state.samples);
  return name === "concepts" ? count(state.concepts.length) : null;
}

/** @param {Page} page */
function rail(page) {
  const here = page.rail ?? page.name;
  /** @param {string} name */
  const link = (name) =>
    h(
      "a",
      { key: name, class: "rail-link", href: address(name), "aria-current": here === name ? "page" : undefined, title: linkTitle(name) },
      icon(name),
      h("span", null, linkTitle(name)),
      railCount(name) ? h("span", { class: "rail-count" }, railCount(name)) : null,
    );
  return h(
    "nav",
    { class: "rail", "aria-label": "Pages" },
    h("a", { class: "rail-name", href: "/" }, icon("logo", 18), h("span", null, capital(store.get().server?.workspace ?? ""))),
    LINKS.map(link),
    h("div", { class: "rail-gap" }),
    ["audit", "forget"].map(link),
  );
}

/** @param {Page} page */
function tabs(page) {
  const here = page.rail ?? page.name;
  return h(
    "nav",
    { class: "tabs", "aria-label": "Pages, short" },
    LINKS.map((name) =>
      h("a", { key: name, href: address(name), "aria-current": here === name ? "page" : undefined }, icon(name, 18), linkTitle(name)),
    ),
  );
}

/** @param {Page} page */
function head(page) {
  const { server, moving, over } = store.get();
  const version = server && server.version > 0 ? `Version ${server.version}` : "";
  return h(
    "header",
    { class: "head" },
    h("h1", null, page.title()),
    page.extra ? h("div", { class: "head-extra" }, page.extra()) : null,
    h("div", { class: "gap" }),
    find(),
    server
      ? h("a", { class: "version", href: address("history") }, h("b", null, version), h("span", null, server.author ? `${server.author}, ${when(server.time)}` : when(server.time)))
      : null,
    h(
      "div",
      { class: "row nowrap" },
      h("button", { type: "button", class: "button bare icon-only undo", disabled: moving || !server?.can_undo, "aria-label": "Undo the last version", title: "Undo the last version (Ctrl Z)", onclick: () => move("undo") }, icon("undo")),
      h("button", { type: "button", class: "button bare icon-only redo", disabled: moving || !server?.can_redo, "aria-label": "Redo a version", title: "Redo a version (Ctrl Y)", onclick: () => move("redo") }, icon("redo")),
    ),
    h("button", { type: "button", class: "person", "aria-label": `You are ${server?.person ?? ""}. Name, colours, keys`, "aria-expanded": over === "menu", onclick: toggleMenu }, initials(server?.person ?? "")),
    h("button", { type: "button", class: "button bare icon-only head-more", "aria-label": "More", "aria-expanded": over === "menu", onclick: toggleMenu }, icon("more")),
  );
}

function toggleMenu() {
  store.set((state) => ({ over: state.over === "menu" ? "" : "menu" }));
}

/** @param {Page} page @param {import("../core/keys.js").Key[]} keys */
function tray(page, keys) {
  const { server, done } = store.get();
  const staged = server?.staged;
  const shown = keys.filter((key) => key.tray);
  if (!staged) return h("footer", { class: "tray" });
  /** @type {Child[]} */
  let left;
  if (staged.total === 0) {
    left = [h("span", { class: "tray-note" }, done || "Nothing staged")];
  } else if (page.quiet) {
    left = [h("span", { class: "tray-note" }, page.note ?? `${stagedWords()}, they wait`)];
  } else {
    left = [
      h("span", { class: "tray-staged" }, diamond(), stagedWords()),
      h("span", { class: "tray-note" }, done || page.note || [h("span", { class: "long" }, "nothing is applied until you commit"), h("span", { class: "short" }, "nothing applied yet")]),
      page.name === "preview" ? null : linkButton("Preview", { kind: "staged", cap: "P", href: address("preview") }),
    ];
  }
  return h("footer", { class: "tray", "aria-label": "Staged, and keys" }, left, h("div", { class: "gap" }), h("div", { class: "tray-keys", "aria-hidden": "true" }, keyLine(shown)));
}

/** "47 labels staged". */
export function stagedWords() {
  const staged = store.get().server?.staged;
  if (!staged || staged.total === 0) return "Nothing staged";
  if (staged.labels === staged.total) return `${count(staged.total)} ${staged.total === 1 ? "label" : "labels"} staged`;
  return `${count(staged.total)} ${staged.total === 1 ? "change" : "changes"} staged`;
}

/** Somebody else was faster, or something was not done: stays until it is read. */
function banner() {
  const { moved, trouble: problem, server } = store.get();
  if (moved && server) {
    const fits = moved.total - moved.conflicts;
    const own = moved.total === 0 ? "Nothing of yours was staged."
      : moved.conflicts === 0 ? `All ${moved.total} of your staged changes still fit and were carried over.`
      : `${fits} of your ${moved.total} staged changes still fit and were carried over; the preview says which do not.`;
    return h(
      "div",
      { class: "banner", key: "moved" },
      h(
        "div",
        { class: "notice", role: "status" },
        h("p", { class: "notice-title" }, icon("people"), `${moved.author ?? "Somebody"} made version ${moved.version} the current one, ${when(moved.time)}.`),
        h("p", null, `${moved.words ? `${capital(moved.words)}. ` : ""}${own}`),
        h(
          "div",
          { class: "actions" },
          linkButton(`What ${moved.author ?? "somebody"} did`, { href: address("history", { second: moved.version }), onclick: () => store.set({ moved: null }) }),
          moved.total ? linkButton(`Preview on version ${moved.version}`, { kind: "ink", href: address("preview"), onclick: () => store.set({ moved: null }) }) : null,
          button("Close", { kind: "quiet", onclick: () => store.set({ moved: null }) }),
        ),
      ),
    );
  }
  if (problem) {
    return h("div", { class: "banner", key: "trouble" }, trouble(problem.what, problem.todo, button("Close", { kind: "quiet", onclick: () => store.set({ trouble: null }) })));
  }
  return null;
}

/** The server does not answer: nothing is lost, and the page finds it again by itself. */
function gone() {
  const { connection, server } = store.get();
  if (connection !== "gone") return null;
  const command = `ecbm serve ${server?.workspace ?? ""}`.trim();
  return h(
    "div",
    { class: "gone", key: "gone" },
    h(
      "div",
      { class: "notice", role: "alert" },
      h("p", { class: "notice-title" }, "The workbench does not answer."),
      h("p", null, "Your labels are stored. Start it again with ", h("b", null, command), "; this page finds it by itself."),
    ),
  );
}

/** @param {Page} page @param {Child} body @param {import("../core/keys.js").Key[]} keys */
export function frame(page, body, keys) {
  const { over } = store.get();
  const inner = h(
    "main",
    { class: ["main", page.fixed?.() && "fixed", `main-${page.name}`], key: page.name, id: "main", tabindex: "-1" },
    banner(),
    body,
  );
  return [
    h("div", { class: "frame", key: "frame" }, head(page), inner, tray(page, keys), rail(page), tabs(page)),
    over === "help" ? help(page, keys) : null,
    over === "menu" ? menu() : null,
    gone(),
  ];
}

/** Before the server has said what it serves. @param {Child} body */
export const bare = (body) => [h("main", { class: "main bare", key: "bare", id: "main" }, body), gone()];
