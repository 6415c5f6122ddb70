// Standing still, so that figures can be read and compared: by button or key, said aloud, and never to be missed.

import { h } from "./dom.js";
import { clock, duration } from "./format.js";
import { onKey } from "./keys.js";

const KEY = "p";

export function pauseButton(paused) {
  return h("div", { id: "pause" }, h("button", { type: "button", "data-pause": "", "aria-pressed": String(paused),
    "aria-keyshortcuts": KEY, "data-tip": `Key: ${KEY}` }, paused ? "go on" : "pause"));
}

/** What stands over the figures while they stand still; `shown` and `now` are times of the wall clock. */
export function pausedNote(shown, now) {
  return h("div", { id: "paused", hidden: shown === null ? "" : null }, shown !== null && [
    h("strong", {}, `Paused at ${clock(shown)}`),
    now - shown < 1 ? ", nothing newer yet. " : `, ${duration(now - shown)} before the newest figures. `,
    h("button", { type: "button", "data-pause": "" }, "go on"), h("small", {}, ` or key ${KEY}`)]);
}

export function onPause(toggle) {
  document.addEventListener("click", ({ target }) => target.closest("[data-pause]") && toggle());
  onKey((key) => key.toLowerCase() === KEY && toggle());
}
