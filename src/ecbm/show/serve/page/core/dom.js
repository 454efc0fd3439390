// The one function that draws. `h` describes an element as a plain value, `draw` makes a part of the document equal to
// such a description and touches only what differs, so that focus, scroll and typed text stay where they are.
// Data becomes text nodes and attributes, never markup: there is no way to write HTML from a string here.

/** @typedef {{ tag: string, key: string | undefined, props: Record<string, any>, children: Drawn[] }} Described */
/** @typedef {Described | string} Drawn */
/** @typedef {Described | string | number | boolean | null | undefined | any[]} Child */

const SVG = "http://www.w3.org/2000/svg";
const AS_PROPERTY = new Set(["value", "checked", "disabled", "open", "indeterminate", "readOnly", "given"]);

/** @typedef {{ props: Record<string, any>, key: string | undefined, tag: string, listeners: Record<string, Function> }} Memory */
/** What was drawn into a node the last time. @type {WeakMap<Node, Memory>} */
const drawn = new WeakMap();

/**
 * Describe an element. Custom elements (with a hyphen) get a value by the property `given` and draw their own inside.
 * @param {string} tag
 * @param {Record<string, any> | null} [props] `class` takes a string or a list with gaps; `style` an object; `onclick` functions.
 * @param {...Child} children
 * @returns {Described}
 */
export function h(tag, props, ...children) {
  const given = props ?? {};
  return { tag, key: given.key === undefined ? undefined : String(given.key), props: given, children: flat(children, []) };
}

/**
 * @param {Child[]} children
 * @param {Drawn[]} out
 * @returns {Drawn[]}
 */
function flat(children, out) {
  for (const child of children) {
    if (Array.isArray(child)) flat(child, out);
    else if (child === null || child === undefined || child === false || child === true) continue;
    else if (typeof child === "object") out.push(child);
    else out.push(String(child));
  }
  return out;
}

/**
 * Make the children of `parent` equal to the description.
 * @param {Element} parent
 * @param {...Child} children
 */
export function draw(parent, ...children) {
  reconcile(parent, flat(children, []));
}

/**
 * @param {Element} parent
 * @param {Drawn[]} wanted
 */
function reconcile(parent, wanted) {
  /** @type {Map<string, ChildNode>} */
  const keyed = new Map();
  /** @type {ChildNode[]} */
  const free = [];
  for (const node of Array.from(parent.childNodes)) {
    const key = drawn.get(node)?.key;
    if (key === undefined) free.push(node);
    else keyed.set(key, node);
  }
  const kept = new Set();
  let next = 0;
  let place = parent.firstChild;
  for (const child of wanted) {
    let node = find(child);
    if (node) update(node, child);
    else node = create(child, parent);
    kept.add(node);
    if (node === place) place = place.nextSibling;
    else parent.insertBefore(node, place);
  }
  for (const node of Array.from(parent.childNodes)) if (!kept.has(node)) node.remove();

  /**
   * @param {Drawn} child
   * @returns {ChildNode | undefined}
   */
  function find(child) {
    if (typeof child !== "string" && child.key !== undefined) {
      const node = keyed.get(child.key);
      return node && drawn.get(node)?.tag === child.tag && !kept.has(node) ? node : undefined;
    }
    while (next < free.length) {
      const node = free[next++];
      if (fits(node, child)) return node;
    }
    return undefined;
  }
}

/**
 * @param {Node} node
 * @param {Drawn} child
 */
function fits(node, child) {
  if (typeof child === "string") return node.nodeType === Node.TEXT_NODE;
  return drawn.get(node)?.tag === child.tag;
}

/**
 * @param {Drawn} child
 * @param {Element} parent
 * @returns {ChildNode}
 */
function create(child, parent) {
  if (typeof child === "string") return document.createTextNode(child);
  const inSvg = child.tag === "svg" || (parent.namespaceURI === SVG && parent.tagName !== "foreignObject");
  const element = inSvg ? document.createElementNS(SVG, child.tag) : document.createElement(child.tag);
  drawn.set(element, { props: {}, key: child.key, tag: child.tag, listeners: {} });
  update(element, child);
  child.props.ref?.(element);
  return element;
}

/**
 * @param {ChildNode} node
 * @param {Drawn} child
 */
function update(node, child) {
  if (typeof child === "string") {
    if (node.nodeValue !== child) node.nodeValue = child;
    return;
  }
  const element = /** @type {HTMLElement} */ (node);
  const memory = /** @type {Memory} */ (drawn.get(node));
  // A list has its options before its value: the value of a select is set after its children.
  if (!child.tag.includes("-")) reconcile(element, child.children);
  for (const name of Object.keys(memory.props)) if (!(name in child.props)) set(element, memory, name, undefined);
  for (const [name, value] of Object.entries(child.props)) {
    if (AS_PROPERTY.has(name) || name === "style" || memory.props[name] !== value) set(element, memory, name, value);
  }
  memory.props = child.props;
}

/**
 * @param {HTMLElement} element
 * @param {Memory} memory
 * @param {string} name
 * @param {any} value
 */
function set(element, memory, name, value) {
  if (name === "key" || name === "ref") return;
  if (name.startsWith("on")) {
    const kind = name.slice(2);
    if (!(kind in memory.listeners)) element.addEventListener(kind, (event) => memory.listeners[kind]?.(event));
    memory.listeners[kind] = value;
  } else if (name === "class") {
    const words = Array.isArray(value) ? value.filter(Boolean).join(" ") : (value ?? "");
    if ((element.getAttribute("class") ?? "") !== words) element.setAttribute("class", words);
  } else if (name === "style") {
    style(element, memory.props.style ?? {}, value ?? {});
  } else if (AS_PROPERTY.has(name)) {
    const target = /** @type {any} */ (element);
    if (target[name] !== value) target[name] = value ?? (name === "value" ? "" : false);
  } else if (value === undefined || value === null || (value === false && !name.startsWith("aria-"))) {
    element.removeAttribute(name);
  } else {
    element.setAttribute(name, value === true && !name.startsWith("aria-") ? "" : String(value));
  }
}

/**
 * Through the object model: a style attribute would be refused by the content-security policy.
 * @param {HTMLElement} element
 * @param {Record<string, any>} before
 * @param {Record<string, any>} after
 */
function style(element, before, after) {
  for (const name of Object.keys(before)) if (!(name in after)) element.style.removeProperty(name);
  for (const [name, value] of Object.entries(after)) {
    if (before[name] !== value) element.style.setProperty(name, String(value));
  }
}

/**
 * A custom element that draws its inside from the value it was `given`, once per frame at most.
 * @template Given
 */
export class Piece extends HTMLElement {
  /** @type {Given | undefined} */
  #given;
  #waiting = false;

  /** @returns {Given | undefined} */
  get given() {
    return this.#given;
  }

  set given(value) {
    if (same(this.#given, value)) return;
    this.#given = value;
    this.redraw();
  }

  connectedCallback() {
    if (this.#given !== undefined) this.redraw();
  }

  /** Draw at the end of this turn, however often it was asked for. */
  redraw() {
    if (this.#waiting) return;
    this.#waiting = true;
    queueMicrotask(() => {
      this.#waiting = false;
      if (this.#given !== undefined && this.isConnected) draw(this, this.drawing(this.#given));
    });
  }

  /**
   * @param {Given} _given
   * @returns {Child}
   */
  drawing(_given) {
    return null;
  }
}

/**
 * @param {any} one
 * @param {any} other
 */
function same(one, other) {
  if (one === other) return true;
  if (!one || !other || typeof one !== "object" || typeof other !== "object") return false;
  const names = Object.keys(one);
  return names.length === Object.keys(other).length && names.every((name) => one[name] === other[name]);
}
