// What a person likes, kept in the browser: colours, single-letter keys, the place in each queue.

const NAME = "ecbm.preferences";

/** @typedef {{ theme: "auto" | "light" | "dark", letters: boolean }} Preferences */

export const preferences = {
  /** @returns {Preferences} */
  read() {
    try {
      const kept = JSON.parse(localStorage.getItem(NAME) ?? "{}");
      return { theme: ["light", "dark"].includes(kept.theme) ? kept.theme : "auto", letters: kept.letters !== false };
    } catch {
      return { theme: "auto", letters: true };
    }
  },
  /** @param {Preferences} wanted */
  keep(wanted) {
    try {
      localStorage.setItem(NAME, JSON.stringify(wanted));
    } catch {
      // A browser without storage forgets it at the next visit, no more.
    }
    this.apply(wanted);
  },
  /** @param {Preferences} wanted */
  apply(wanted) {
    if (wanted.theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = wanted.theme;
  },
};

/**
 * The place somebody has reached, by name; survives a reload.
 * @param {string} name
 */
export function readPlace(name) {
  try {
    return JSON.parse(localStorage.getItem("ecbm.places") ?? "{}")[name] ?? null;
  } catch {
    return null;
  }
}

/**
 * @param {string} name
 * @param {any} place
 */
export function keepPlace(name, place) {
  try {
    const places = JSON.parse(localStorage.getItem("ecbm.places") ?? "{}");
    localStorage.setItem("ecbm.places", JSON.stringify({ ...places, [name]: place }));
  } catch {
    // As above.
  }
}
