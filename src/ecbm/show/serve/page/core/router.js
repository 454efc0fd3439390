// The address is part of the state: which page, which picture, which filter. A reload, a bookmark and "back" find the same place.

/** @typedef {{ page: string, id: string | null, query: Record<string, string> }} Route */

/**
 * "#/pictures/bird-01431?of=wrong" → page, id and query.
 * @param {string} hash
 * @returns {Route}
 */
export function parse(hash) {
  const text = hash.replace(/^#\/?/, "");
  const cut = text.indexOf("?");
  const path = (cut < 0 ? text : text.slice(0, cut)).split("/");
  const query = Object.fromEntries(new URLSearchParams(cut < 0 ? "" : text.slice(cut + 1)));
  let id = null;
  try {
    id = path[1] ? decodeURIComponent(path[1]) : null;
  } catch {
    id = path[1];
  }
  return { page: path[0] || "overview", id, query };
}

/**
 * The address of a page, for links: every figure is one.
 * @param {string} page
 * @param {string | null} [id]
 * @param {Record<string, string | number | null | undefined>} [query]
 */
export function address(page, id = null, query = {}) {
  const kept = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const words = new URLSearchParams(kept.map(([name, value]) => [name, String(value)])).toString();
  return `#/${page}${id ? `/${encodeURIComponent(id)}` : ""}${words ? `?${words}` : ""}`;
}

/**
 * Go somewhere; `replace` where the way there is not worth a step back (the place in a queue).
 * @param {string} to
 * @param {boolean} [replace]
 */
export function go(to, replace = false) {
  if (replace) {
    history.replaceState(null, "", to);
    window.dispatchEvent(new HashChangeEvent("hashchange"));
  } else {
    location.hash = to;
  }
}
