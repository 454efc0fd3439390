// Shows a few of very many things: only what is in sight (and a little around it) is in the document.
import { h, Piece } from "../core/dom.js";

/**
 * @typedef {object} Windowed
 * @property {number} total
 * @property {(index: number) => import("../core/dom.js").Described} item
 * @property {number} width of an item, at least (a grid shares out what is left)
 * @property {number} height of an item
 * @property {number} gap
 * @property {boolean} [sideways] a strip instead of a grid
 * @property {number} [inset] room around all items, for their rings
 * @property {boolean} [fixedHeight] items that do not grow with their column
 * @property {number | null} [at] the item to keep in sight
 * @property {string} label
 * @property {(first: number, last: number) => void} [inSight]
 * @property {any} [revision] changes when items should be drawn again
 */

/** @extends {Piece<Windowed>} */
export class WindowedList extends Piece {
  #asked = 0;
  /** @type {number | null} */
  #shown = null;
  /** @type {ResizeObserver | null} */
  #observer = null;

  connectedCallback() {
    this.tabIndex = -1;
    this.addEventListener("scroll", this.#scrolled, { passive: true });
    this.#observer = new ResizeObserver(() => {
      this.#shown = null;
      this.redraw();
    });
    this.#observer.observe(this);
    super.connectedCallback();
  }

  disconnectedCallback() {
    this.removeEventListener("scroll", this.#scrolled);
    this.#observer?.disconnect();
  }

  #scrolled = () => {
    if (this.#asked) return;
    this.#asked = requestAnimationFrame(() => {
      this.#asked = 0;
      this.redraw();
    });
  };

  /** How many items stand side by side. */
  get columns() {
    const given = this.given;
    if (!given || given.sideways) return 1;
    return Math.max(1, Math.floor((this.clientWidth - 2 * (given.inset ?? 0) + given.gap) / (given.width + given.gap)));
  }

  /** @param {Windowed} given */
  drawing(given) {
    const { total, gap, sideways = false, inset = 0 } = given;
    const columns = this.columns;
    const width = sideways ? given.width : (this.clientWidth - 2 * inset - gap * (columns - 1)) / columns;
    // Square pictures grow with their column; what stands under them keeps its height.
    const height = sideways || given.fixedHeight ? given.height : given.height - given.width + width;
    const step = sideways ? width + gap : height + gap;
    const rows = Math.ceil(total / columns);
    if (given.at !== null && given.at !== undefined && given.at !== this.#shown && this.clientWidth) {
      this.#reveal(Math.floor(given.at / columns), step, sideways);
      this.#shown = given.at;
    }
    const offset = sideways ? this.scrollLeft : this.scrollTop;
    const sight = sideways ? this.clientWidth : this.clientHeight;
    const first = Math.max(0, Math.floor(offset / step) - 2) * columns;
    const last = Math.min(total, (Math.ceil((offset + sight) / step) + 2) * columns);
    given.inSight?.(first, last);
    const items = [];
    for (let index = first; index < last; index += 1) {
      const x = inset + (sideways ? index * step : (index % columns) * (width + gap));
      const y = inset + (sideways ? 0 : Math.floor(index / columns) * step);
      items.push(
        h(
          "div",
          {
            key: String(index), class: "windowed-item", role: "listitem", "aria-setsize": total, "aria-posinset": index + 1,
            style: { transform: `translate(${x}px, ${y}px)`, width: `${width}px`, height: `${height}px` },
          },
          given.item(index),
        ),
      );
    }
    const length = Math.max(0, rows * step - gap + 2 * inset);
    return h(
      "div",
      {
        class: "windowed-all", role: "list", "aria-label": given.label,
        style: sideways ? { width: `${length}px`, height: `${height}px` } : { height: `${length}px` },
      },
      items,
    );
  }

  /**
   * @param {number} row
   * @param {number} step
   * @param {boolean} sideways
   */
  #reveal(row, step, sideways) {
    const start = row * step;
    if (sideways) {
      this.firstElementChild ?? this.append(document.createElement("div"));
      this.#scroll(start - this.clientWidth * 0.36);
      return;
    }
    if (start < this.scrollTop) this.scrollTop = start;
    else if (start + step > this.scrollTop + this.clientHeight) this.scrollTop = start + step - this.clientHeight;
  }

  /** The strip must be as long as its items before it can be scrolled to one of them. @param {number} left */
  #scroll(left) {
    if (this.scrollWidth >= left + this.clientWidth || left <= 0) this.scrollLeft = left;
    else queueMicrotask(() => requestAnimationFrame(() => (this.scrollLeft = left)));
  }
}

customElements.define("windowed-list", WindowedList);
