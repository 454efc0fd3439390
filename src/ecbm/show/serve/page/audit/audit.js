// The report of a version, as it is printed and saved. It is a page of its own, shown in a frame that may run no script.
import { h } from "../core/dom.js";
import { address, go } from "../core/router.js";
import { get, Refusal } from "../core/server.js";
import { load, server, slice, store } from "../core/app.js";
import { button, shapes, trouble } from "../components/marks.js";

const part = slice("audit", {
  versions: /** @type {import("../core/api.js").VersionRow[]} */ ([]), sections: /** @type {{ id: string, words: string }[]} */ ([]), here: 0, shown: 0,
  ready: false, problemcontents: /** @type {import("../core/api.js").Problem | null} */ (null),
});

const version = () => Number(store.get().route.query.version) || server().version;

function enter() {
  if (part.get().shown !== version()) part.set({ ready: false, sections: [], shown: version(), here: 0 });
  load(part, contents, (sections) => part.set({ sections }), "contents");
  load(part, () => get("/api/history", { limit: 200 }), (view) => part.set({ versions: view.rows.filter((/** @type {any} */ row) => row.can_report) }));
}

const source = () => `/api/report?version=${version()}`;
const frame = () => /** @type {HTMLIFrameElement | null} */ (document.getElementById("report"));

/** The report's own headings become the contents. They are found in its text: parsed as a page, its styles would be refused. */
async function contents() {
  const answer = await fetch(source(), { credentials: "same-origin" });
  const text = await answer.text();
  if (!answer.ok) {
    const problem = JSON.parse(text);
    throw new Refusal(answer.status, problem);
  }
  return [...text.matchAll(/<h2 id="([\w-]+)">([^<]*)</g)].map(([, id, words]) => ({ id, words: words.replaceAll("&#x27;", "’").replaceAll("&amp;", "&") }));
}

/** @param {number} index */
function show(index) {
  const { sections } = part.get();
  const next = Math.max(0, Math.min(sections.length - 1, index));
  if (!sections[next]) return;
  part.set({ here: next });
  const shown = frame();
  // Another fragment of the same document: the frame scrolls, nothing is loaded.
  if (shown) shown.src = `${source()}#${sections[next].id}`;
}

/** The frame may be closed to scripts of this page; then the report opens as a page of its own, to be printed there. */
function print() {
  try {
    if (!frame()?.contentDocument) throw new Error("closed");
    frame()?.contentWindow?.print();
  } catch {
    window.open(source(), "_blank", "noopener");
  }
}

/** @type {import("../components/frame.js").Page} */
export const audit = {
  name: "audit",
  title: () => "Audit",
  fixed: () => true,
  enter,
  refresh: enter,
  keys: () => [
    { key: "p", ctrl: true, words: "print", run: print, tray: true },
    { key: "ArrowUp", words: "sections", run: () => show(part.get().here - 1), tray: true },
    { key: "ArrowDown", words: "sections", run: () => show(part.get().here + 1), tray: true },
  ],
  draw() {
    const { sections, here, ready, versions, problemcontents: problem } = part.get();
    return h(
      "div",
      { class: "audit" },
      h(
        "nav",
        { class: "audit-contents", "aria-label": "Contents of the report" },
        versions.length > 1 ? h("label", { class: "labelled" }, h("span", null, "Report of"), h("select", { class: "field", value: String(version()), onchange: (/** @type {Event} */ event) => go(address("audit", { version: /** @type {HTMLSelectElement} */ (event.target).value }), true) }, versions.map((row) => h("option", { key: row.version, value: String(row.version) }, `Version ${row.version}`)))) : null,
        h("ol", { class: "audit-sections dense" }, sections.map((one, index) => h("li", { key: one.id }, h("button", { type: "button", class: index === here ? "here" : "", "aria-current": index === here ? "true" : undefined, onclick: () => show(index) }, one.words)))),
        h("div", { class: "column audit-buttons" }, button("Print", { icon: "print", disabled: !ready, onclick: print }), h("a", { class: "button", href: source(), download: `${server().workspace}-version-${version()}.html` }, "Save as HTML")),
      ),
      h("div", { class: "audit-sheet" }, problem ? trouble(problem.what, problem.todo) : null, ready || problem ? null : h("div", { class: "audit-waiting" }, h("p", { class: "soft" }, "Writing the report …"), shapes(8)), h("iframe", { id: "report", key: source(), class: ready && !problem ? "" : "unready", src: source(), title: `Report of version ${version()}`, sandbox: "allow-same-origin allow-modals allow-popups", onload: () => part.set({ ready: true }) })),
    );
  },
};
