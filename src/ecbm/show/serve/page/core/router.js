// The address is part of the state: which page, which picture, which filter. A reload, a bookmark and "back" find the same place.

/** @typedef {{ page: string, query: Record<string, string> }} Route */

/** @typedef {Record<string, string | number | null | undefined>} Query */

/**
 * "/sample?id=bird-01431&wrong=class" → page and query.
 * @param {{ pathname: string, search: string }} place
 * @returns {Route}
 */
export function parse(place) {
  const page = place.pathname.split("/")[1] || "overview";
  return { page, query: Object.fromEntries(new URLSearchParams(place.search)) };
}

/**
 * A query string without gaps.
 * @param {Query} query
 */
export function written(query) {
  const kept = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return new URLSearchParams(kept.map(([name, value]) => [name, String(value)])).toString();
}

/**
 * The address of a page, for links: every figure is one. The server's own queries may be given as they are.
 * @param {string} page
 * @param {Query | string} [query]
 */
export function address(page, query = {}) {
  const words = typeof query === "string" ? query : written(query);
  return `/${page === "overview" ? "" : page}${words ? `?${words}` : ""}`;
}

/**
 * The address of one picture; with a filter, its neighbours are those of the filter.
 * @param {string} id
 * @param {Query | string} [filter]
 */
export function sampleAddress(id, filter = {}) {
  const rest = typeof filter === "string" ? filter : written(filter);
  return `/sample?id=${encodeURIComponent(id)}${rest ? `&${rest}` : ""}`;
}

/** @type {((route: Route) => void) | null} */
let listener = null;

/**
 * Go somewhere; `replace` where the way there is not worth a step back (the place in a queue).
 * @param {string} to
 * @param {boolean} [replace]
 */
export function go(to, replace = false) {
  if (replace) history.replaceState(null, "", to);
  else if (to !== location.pathname + location.search) history.pushState(null, "", to);
  listener?.(parse(location));
}

/**
 * Tell `changed` of every new place, and take over the page's own links.
 * @param {(route: Route) => void} changed
 * @param {(page: string) => boolean} ours
 */
export function follow(changed, ours) {
  listener = changed;
  window.addEventListener("popstate", () => changed(parse(location)));
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
    if (!(link instanceof HTMLAnchorElement) || link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
    if (!ours(parse(link).page)) return;
    event.preventDefault();
    go(link.pathname + link.search);
  });
}
