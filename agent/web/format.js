// Numbers as text. What is not known is a dash, never a zero.

export const UNKNOWN = "–";

const COUNT = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const RATE = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 3, signDisplay: "exceptZero" });
const GIB = new Intl.NumberFormat("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
const SIGNED_GIB = new Intl.NumberFormat("en-US", {
  minimumFractionDigits: 2, maximumFractionDigits: 2, signDisplay: "exceptZero",
});
const PERCENT = new Intl.NumberFormat("en-US", { minimumFractionDigits: 1, maximumFractionDigits: 1 });

/** Bytes as a bare number of GiB, two decimals. */
export const gib = (bytes) => orDash(bytes, () => GIB.format(bytes / 2 ** 30));

/** A difference in bytes as a bare number of GiB, with its sign. */
export const signedGib = (bytes) => orDash(bytes, () => minus(SIGNED_GIB.format(bytes / 2 ** 30)));

/** A ratio (0-1) in percent, one decimal. */
export const percent = (ratio) => orDash(ratio, () => `${PERCENT.format(ratio * 100)}\u202f%`);

export const count = (number) => orDash(number, () => COUNT.format(number));

/** Tokens per second with sign, three significant digits. */
export const rate = (perSecond) => orDash(perSecond, () => minus(RATE.format(perSecond)));

/** Seconds as the one unit a person would say. */
export function duration(seconds) {
  if (seconds < 100) return `${Math.round(seconds)}\u202fs`;
  if (seconds < 100 * 60) return `${Math.round(seconds / 60)}\u202fmin`;
  if (seconds < 48 * 3600) return `${Math.round(seconds / 3600)}\u202fh`;
  return `${Math.round(seconds / 86400)}\u202fd`;
}

/** What a device is called: by its index, or by the UUID that stands for one whose index another has now. */
export const gpuName = (gpu) => (/^(GPU|MIG)-/.test(gpu) ? gpu : `GPU ${gpu}`);

export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

/** A time of the wall clock, seconds since the epoch: ISO date and time where this browser is, and its zone by name. */
export const moment = (seconds) => `${here(seconds).replace("T", " ")} ${zone(seconds)}`;

/** The time of the day of a moment, where this browser is. */
export const clock = (seconds) => here(seconds).slice(11);

function here(seconds) {
  return new Date((seconds + 60 * east(seconds)) * 1000).toISOString().slice(0, 19);
}

function zone(seconds) {
  const minutes = east(seconds);
  const two = (number) => String(number).padStart(2, "0");
  const size = Math.abs(minutes);
  return minutes ? `UTC${minutes < 0 ? "\u2212" : "+"}${two(Math.floor(size / 60))}:${two(size % 60)}` : "UTC";
}

/** How many minutes this browser's zone is ahead of UTC at a time. */
const east = (seconds) => -new Date(seconds * 1000).getTimezoneOffset();

/** A width in CSS percent. */
export const width = (part, whole) => `${(100 * part) / whole}%`;

export const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);

/** The difference, or null where one side is not known. */
export const difference = (a, b) => (a == null || b == null ? null : a - b);

function orDash(value, format) {
  return value === null || value === undefined ? UNKNOWN : format();
}

function minus(text) {
  return text.replace("-", "\u2212");
}
