// How far back the charts go: a choice of minutes, where a recorder keeps them, or a recording holds them.

import { h } from "./dom.js";
import { onKey } from "./keys.js";
import { get } from "./live.js";

const RECENT = "api/v1/history"; // the last ten minutes, each second
const RECORDED = "api/v1/history?recorded";
const RECENT_MINUTES = 10;
const CHOICES = [null, 5, 15, 30];
const KEYS = { "+": -1, "=": -1, "-": 1 }; // nearer, farther
const READING_MS = 10000;

let chosen = null;

/** The buttons; where nothing is recorded there is nothing to choose. */
export function rangeButtons({ recorder, recording }) {
  return h("div", { id: "range", role: "group", "aria-label": "How far back charts go" },
    (recorder || recording) && CHOICES.map((minutes) => h("button", {
      type: "button", "data-range": minutes ?? "", "aria-pressed": String(chosen === minutes),
      "aria-keyshortcuts": "+ -", "data-tip": "Keys: + and \u2212",
    }, minutes ? `${minutes} min` : "auto")));
}

export async function loadHistory(history) {
  const minutes = chosen;
  const isLong = minutes > RECENT_MINUTES;
  const [recent, recorded] = await Promise.all([get(RECENT), isLong ? get(RECORDED, READING_MS) : null]);
  if (minutes === chosen) history.load(recent, recorded, minutes);
}

/** Choose by click or key; `reload` has the history filled anew. */
export function onRange(reload) {
  const choose = (minutes) => {
    if (minutes === chosen) return;
    chosen = minutes;
    reload();
  };
  document.addEventListener("click", ({ target }) => {
    const button = target.closest("[data-range]");
    if (button) choose(Number(button.dataset.range) || null);
  });
  onKey((key) => {
    if (!(key in KEYS) || !document.querySelector("[data-range]")) return;
    choose(CHOICES[Math.min(Math.max(CHOICES.indexOf(chosen) + KEYS[key], 0), CHOICES.length - 1)]);
  });
}
