// A picture that can be looked at closely: wheel or buttons zoom, dragging and arrow keys move, double click goes back.
import { h, Piece } from "../core/dom.js";
import { icon } from "../core/icons.js";

/** @typedef {{ source: string, words: string, pixels: number | null }} Picture */

const LARGEST = 16;

/** @extends {Piece<Picture>} */
export class ZoomPicture extends Piece {
  #scale = 1;
  #x = 0;
  #y = 0;
  /** @type {{ x: number, y: number } | null} */
  #drag = null;
  /** @type {string | null} */
  #source = null;

  /** @param {number} factor @param {number} [x] the point that stays, from the middle @param {number} [y] */
  zoom(factor, x = 0, y = 0) {
    const before = this.#scale;
    this.#scale = Math.min(LARGEST, Math.max(1, before * factor));
    const ratio = this.#scale / before;
    this.#move(x - ratio * (x - this.#x), y - ratio * (y - this.#y));
  }

  /** From whole to close and back: what the key does. */
  toggle() {
    this.#scale = this.#scale > 1 ? 1 : 3;
    this.#move(0, 0);
  }

  /** @param {number} x @param {number} y */
  #move(x, y) {
    const reach = (this.clientWidth * (this.#scale - 1)) / 2;
    this.#x = Math.min(reach, Math.max(-reach, x));
    this.#y = Math.min(reach, Math.max(-reach, y));
    this.redraw();
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const step = 40;
    /** @type {Record<string, [number, number]>} */
    const moves = { ArrowLeft: [step, 0], ArrowRight: [-step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
    if (event.key === "+") this.zoom(1.5);
    else if (event.key === "-") this.zoom(1 / 1.5);
    else if (event.key in moves && this.#scale > 1) this.#move(this.#x + moves[event.key][0], this.#y + moves[event.key][1]);
    else return;
    event.preventDefault();
  }

  /** @param {Picture} given */
  drawing(given) {
    if (given.source !== this.#source) {
      this.#source = given.source;
      this.#scale = 1;
      this.#x = 0;
      this.#y = 0;
    }
    const shown = given.pixels ? (this.clientWidth * this.#scale) / given.pixels : this.#scale;
    return [
      h(
        "div",
        {
          class: ["zoom-well", this.#scale > 1 && "close"], tabindex: "0", role: "img",
          "aria-label": `${given.words}; plus and minus zoom, arrows move`,
          onwheel: (/** @type {WheelEvent} */ event) => {
            event.preventDefault();
            const box = this.getBoundingClientRect();
            this.zoom(event.deltaY < 0 ? 1.2 : 1 / 1.2, event.clientX - box.x - box.width / 2, event.clientY - box.y - box.height / 2);
          },
          onpointerdown: (/** @type {PointerEvent} */ event) => {
            this.#drag = { x: event.clientX - this.#x, y: event.clientY - this.#y };
            /** @type {Element} */ (event.currentTarget).setPointerCapture(event.pointerId);
          },
          onpointermove: (/** @type {PointerEvent} */ event) => {
            if (this.#drag && this.#scale > 1) this.#move(event.clientX - this.#drag.x, event.clientY - this.#drag.y);
          },
          onpointerup: () => (this.#drag = null),
          onpointercancel: () => (this.#drag = null),
          ondblclick: () => this.toggle(),
          onkeydown: (/** @type {KeyboardEvent} */ event) => this.#key(event),
        },
        h("img", {
          src: given.source, alt: "", draggable: "false", class: shown > 8 ? "pixelated" : "",
          style: { transform: `translate(${this.#x}px, ${this.#y}px) scale(${this.#scale})` },
        }),
      ),
      h(
        "div",
        { class: "zoom-buttons" },
        h("button", { type: "button", class: "button icon-only", "aria-label": "zoom out", onclick: () => this.zoom(1 / 1.5) }, icon("minus", 12)),
        h("button", { type: "button", class: "button figure", "aria-label": "whole picture", onclick: () => this.zoom(1 / LARGEST) }, `${Math.round(100 * (given.pixels ? shown : this.#scale))}\u202f%`),
        h("button", { type: "button", class: "button icon-only", "aria-label": "zoom in", onclick: () => this.zoom(1.5) }, icon("plus", 12)),
      ),
    ];
  }
}

customElements.define("zoom-picture", ZoomPicture);
