// Every action has a key. Pages say theirs as data, so that the tray, the "?" overlay and the listener cannot disagree.

/**
 * @typedef {object} Key
 * @property {string} key as the browser names it ("1", "ArrowLeft", "Escape"), letters in lower case
 * @property {string} words what it does
 * @property {() => void} run
 * @property {boolean} [ctrl]
 * @property {boolean} [tray] whether the tray names it
 * @property {string} [shown] how the key is drawn, where its name is not enough
 * @property {boolean} [infield] whether it also works while a field has the focus
 */

const SHOWN = /** @type {Record<string, string>} */ ({
  ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓", Enter: "↵", Escape: "Esc", Backspace: "⌫",
});

/** What stands on the key's cap. @param {Key} key */
export function caps(key) {
  const cap = key.shown ?? SHOWN[key.key] ?? key.key.toUpperCase();
  return key.ctrl ? ["Ctrl", cap] : [cap];
}

/** @param {EventTarget | null} target */
function typing(target) {
  if (!(target instanceof HTMLElement)) return false;
  if (target.isContentEditable || target.tagName === "TEXTAREA" || target.tagName === "SELECT") return true;
  return target instanceof HTMLInputElement && !["checkbox", "radio", "button", "submit", "file", "range"].includes(target.type);
}

/** @param {KeyboardEvent} event @param {Key} key */
function pressed(event, key) {
  const name = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  return name === key.key && Boolean(key.ctrl) === (event.ctrlKey || event.metaKey);
}

/**
 * Listen for the keys that `current` names, page first. After `g`, the next letter is looked up in `goto`.
 * @param {() => Key[]} current
 * @param {() => Record<string, () => void>} goto
 * @param {() => boolean} letters whether single letters are switched on
 */
export function listen(current, goto, letters) {
  let going = 0;
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.altKey || event.isComposing) return;
    const single = event.key.length === 1 && !event.ctrlKey && !event.metaKey;
    const field = typing(event.target);
    if (single && (field || !letters())) return;
    if (single && going && Date.now() - going < 1500) {
      going = 0;
      const target = goto()[event.key.toLowerCase()];
      if (target) {
        event.preventDefault();
        target();
        return;
      }
    }
    if (single && event.key.toLowerCase() === "g") {
      going = Date.now();
      return;
    }
    going = 0;
    const found = current().find((key) => pressed(event, key) && (!field || key.infield));
    if (!found) return;
    if (event.key === "Enter" && !event.ctrlKey && actsOnEnter(event.target)) return;
    event.preventDefault();
    found.run();
  });
}

/** A focused button or link keeps its own Enter. @param {EventTarget | null} target */
function actsOnEnter(target) {
  return target instanceof HTMLElement && target.closest("button, a, summary, [role=button]") !== null;
}
