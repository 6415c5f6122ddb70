// How far back the charts go: a choice of minutes, where a recorder keeps them.

import { h } from "./dom.js";
import { get } from "./live.js";

const RECENT = "api/v1/history"; // the last ten minutes, each second
const RECORDED = "api/v1/history?recorded";
const RECENT_MINUTES = 10;
const CHOICES = [5, 15, 30];
const READING_MS = 10000;

let chosen = null;

/** The buttons; without a recorder there is nothing to choose. */
export function rangeButtons({ recorder, recording }) {
  const button = (minutes, text) => h("button", {
    type: "button", "data-range": minutes ?? "", "aria-pressed": String(chosen === minutes),
  }, text);
  return h("div", { id: "range", role: "group", "aria-label": "How far back charts go" },
    recorder && !recording && [button(null, "auto"), CHOICES.map((minutes) => button(minutes, `${minutes} min`))]);
}

/** Fill the history for the range that is chosen. */
export async function loadHistory(history) {
  const minutes = chosen;
  const isLong = minutes > RECENT_MINUTES;
  const document = await get(isLong ? RECORDED : RECENT, isLong ? READING_MS : undefined);
  if (minutes === chosen) history.load(document, minutes);
}

/** Choose by click or key; `reload` has the history filled anew. */
export function onRange(reload) {
  document.addEventListener("click", ({ target }) => {
    const button = target.closest("[data-range]");
    if (!button) return;
    chosen = Number(button.dataset.range) || null;
    reload();
  });
}
