// Numbers, names and times as people write them. No figure leaves here without the unit it needs.

const THIN = "\u202f";
const grouped = new Intl.NumberFormat("en-GB");

/** @param {number} value */
export const count = (value) => grouped.format(value);

/**
 * "1 picture", "12 pictures".
 * @param {number} number
 * @param {string} noun
 * @param {string} [plural]
 */
export function many(number, noun, plural) {
  return `${count(number)}\u00a0${number === 1 ? noun : (plural ?? nouns(noun))}`;
}

/** @param {string} noun */
export function nouns(noun) {
  if (noun.endsWith("s")) return `${noun}es`;
  return noun.endsWith("y") ? `${noun.slice(0, -1)}ies` : `${noun}s`;
}

/**
 * A share in percent, with a decimal only where one picture is less than half a point: "95.0 %", "87 %".
 * @param {number | null | undefined} share between 0 and 1
 * @param {number} [of] of how many
 */
export function percent(share, of = 0) {
  if (share === null || share === undefined || Number.isNaN(share)) return "–";
  return `${(100 * share).toFixed(of > 200 ? 1 : 0)}${THIN}%`;
}

/**
 * A probability the model says: whole percent are all it is good for.
 * @param {number | null | undefined} value
 */
export const probability = (value) => percent(value, 0);

/**
 * "+1.69", "−0.44", with a real minus.
 * @param {number} value
 * @param {number} [digits]
 */
export function signed(value, digits = 2) {
  const text = Math.abs(value).toFixed(digits);
  if (Number(text) === 0) return text;
  return (value < 0 ? "\u2212" : "+") + text;
}

/** @param {number} value */
export function plain(value) {
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : Math.abs(value) >= 0.1 ? 2 : 4;
  return String(Number(value.toFixed(digits))).replace("-", "\u2212");
}

/** A field of a record: numbers as people write them. @param {number | string | null | undefined} value */
export const shown = (value) => (typeof value === "number" ? plain(value) : (value ?? "–"));

/** "0.1 s", "14 s", "3 min". @param {number} value */
export function seconds(value) {
  if (value < 0.095) return `<${THIN}0.1${THIN}s`;
  if (value < 9.95) return `${value.toFixed(1)}${THIN}s`;
  return value < 120 ? `${Math.round(value)}${THIN}s` : `${Math.round(value / 60)}${THIN}min`;
}

/** @param {number} value */
export function bytes(value) {
  if (value < 1000) return `${value} B`;
  const units = ["kB", "MB", "GB", "TB"];
  let size = value / 1000;
  let unit = 0;
  while (size >= 1000 && unit < units.length - 1) {
    size /= 1000;
    unit += 1;
  }
  return `${size < 10 ? size.toFixed(1) : Math.round(size)} ${units[unit]}`;
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const weekday = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "short" });
const longDay = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "long", year: "numeric" });

/**
 * "today 10:42", "Mon 11 May 16:20", or with `short` "10:42" and "Mon 11 May".
 * @param {string | null | undefined} time
 * @param {boolean} [short]
 */
export function when(time, short = false) {
  if (!time) return "";
  const then = new Date(time);
  if (Number.isNaN(then.getTime())) return time;
  const now = new Date();
  const today = then.toDateString() === now.toDateString();
  if (short) return today ? clock.format(then) : weekday.format(then).replace(",", "");
  if (today) return `today ${clock.format(then)}`;
  if (then.getFullYear() !== now.getFullYear()) return `${longDay.format(then)} ${clock.format(then)}`;
  return `${weekday.format(then).replace(",", "")} ${clock.format(then)}`;
}

/**
 * Whether a label is one of its concept's values by name: a grade is a number, its name is not.
 * @param {number | string | null | undefined} label
 * @param {string} value
 */
export const isValue = (label, value) => (typeof label === "number" ? label === Number(value) : label === value);

/** @param {string} text */
export const capital = (text) => (text ? text[0].toUpperCase() + text.slice(1) : text);

/** "wing_color" → "wing color". @param {string} name */
export const spaced = (name) => name.replaceAll("_", " ");

/**
 * A concept's name in its parts: "bill=long" is "long" in the group "Bill"; "crest" stands alone.
 * @param {string} name
 */
export function conceptParts(name) {
  const cut = name.indexOf("=");
  if (cut < 1) return { group: null, value: capital(spaced(name)) };
  return { group: capital(spaced(name.slice(0, cut))), value: spaced(name.slice(cut + 1)) };
}

/** "Bill: long", "Crest". @param {string} name */
export function conceptWords(name) {
  const { group, value } = conceptParts(name);
  return group ? `${group}: ${value}` : value;
}

/** A question about a concept: "Crest: do you see it?". @param {string} name @param {boolean} pictures */
export function question(name, pictures) {
  return pictures ? `${conceptWords(name)}: do you see it?` : `${conceptWords(name)}: is it there?`;
}

/** @param {string} name */
export function initials(name) {
  const parts = name.trim().split(/[\s._@-]+/).filter(Boolean);
  return parts.length === 0 ? "?" : ((parts[0][0] ?? "") + (parts.length > 1 ? (parts.at(-1) ?? "")[0] : "")).toUpperCase();
}

/** "a, b and c". @param {string[]} parts */
export function listed(parts) {
  return parts.length < 2 ? (parts[0] ?? "") : `${parts.slice(0, -1).join(", ")} and ${parts.at(-1)}`;
}

/**
 * Figures of a waterfall, rounded as they are shown; the remainder goes to the others, so that they add up as shown.
 * @param {{ start: number, score: number, parts: { concept: string, title: string, adds: number }[] }} score
 * @param {string[]} named the concepts that get a line of their own, in order
 */
export function waterfall(score, named) {
  const cents = (/** @type {number} */ value) => Math.round(100 * value);
  const lines = named.flatMap((concept) => score.parts.filter((part) => part.concept === concept))
    .map((part) => ({ concept: part.concept, title: part.title, adds: cents(part.adds) / 100 }));
  const said = cents(score.start) + lines.reduce((total, line) => total + cents(line.adds), 0);
  return {
    lines, rest: score.parts.length - lines.length, start: cents(score.start) / 100,
    others: (cents(score.score) - said) / 100, sum: cents(score.score) / 100,
  };
}
