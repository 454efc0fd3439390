// A picture in a row of pictures, with at most one badge, bottom right. Where data is a table, the tile shows the record's id.
import { h, Piece } from "../core/dom.js";
import { diamond, icon } from "../core/icons.js";

/** @typedef {"staged" | "kept" | "unsure" | "wrong" | null} Badge */
/**
 * @typedef {object} Tile
 * @property {string} id
 * @property {string | null} source address of the thumbnail; null for a record of a table
 * @property {string} [href]
 * @property {Badge} [badge]
 * @property {boolean} [here]
 * @property {string} [words] what a screen reader says of it
 * @property {string | null} [under] a line under the picture
 * @property {string | null} [differs] a second one: what the model says instead
 * @property {boolean} [waiting] an answer that is not stored yet
 * @property {boolean} [erased]
 * @property {(() => void) | null} [onclick]
 * @property {string} [title]
 */

/** @type {Record<string, [() => import("../core/dom.js").Child, string]>} */
const BADGES = {
  staged: [() => diamond(8), "staged"],
  kept: [() => "=", "label kept"],
  unsure: [() => "?", "unsure"],
  wrong: [() => icon("unequal", 12), "wrong"],
};

/** @extends {Piece<Tile>} */
export class PictureTile extends Piece {
  /** @type {"loading" | "there" | "missing"} */
  #picture = "loading";
  /** @type {string | null} */
  #source = null;

  /** @param {Tile} tile */
  drawing(tile) {
    if (this.#source !== tile.source) {
      this.#source = tile.source;
      this.#picture = "loading";
    }
    const badge = tile.badge ? BADGES[tile.badge] : null;
    const says = [tile.words ?? tile.id, badge?.[1], tile.waiting && "not stored, trying again"].filter(Boolean).join(", ");
    const inside = [
      this.#inside(tile),
      badge && !tile.waiting ? h("span", { class: "badge", "aria-hidden": "true" }, badge[0]()) : null,
      tile.waiting ? h("span", { class: "badge", "aria-hidden": "true" }, icon("clock", 12)) : null,
    ];
    const classes = ["tile", tile.badge, tile.here && "here", tile.erased && "erased"];
    const props = { class: classes, "aria-label": says, title: tile.title, "aria-current": tile.here ? "true" : undefined };
    const face = tile.onclick
      ? h("button", { type: "button", ...props, onclick: tile.onclick }, inside)
      : tile.href
        ? h("a", { ...props, href: tile.href }, inside)
        : h("span", { ...props, role: "img" }, inside);
    return [
      face,
      tile.waiting ? h("span", { class: "tile-under waiting" }, "not stored, trying again") : null,
      tile.under && !tile.waiting ? h("span", { class: "tile-under" }, tile.under) : null,
      tile.differs && !tile.waiting ? h("span", { class: "tile-under differs" }, tile.differs) : null,
    ];
  }

  /** @param {Tile} tile */
  #inside(tile) {
    if (tile.erased) return null;
    if (tile.source === null) return h("span", { class: "tile-record" }, icon("table", 14), h("span", null, tile.id));
    if (this.#picture === "missing") return h("span", { class: "tile-missing", title: "no picture" }, icon("warning"));
    return h("img", {
      src: tile.source, alt: "", loading: "lazy", decoding: "async", draggable: "false",
      class: this.#picture === "loading" ? "loading" : "",
      onload: () => this.#became("there"),
      onerror: () => this.#became("missing"),
    });
  }

  /** @param {"there" | "missing"} state */
  #became(state) {
    if (this.#picture === state) return;
    this.#picture = state;
    this.redraw();
  }
}

customElements.define("picture-tile", PictureTile);

/** @param {Tile} given @param {Record<string, any>} [props] */
export const tile = (given, props = {}) => h("picture-tile", { key: given.id, ...props, given });
