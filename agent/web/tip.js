// One floating note for the whole page: what an element says of its figure in `data-tip`, one line per sentence.
// It shows on hover, on keyboard focus and on touch; Escape hides it, and the pointer may move into it.

import { h } from "./dom.js";

const EDGE = 8; // pixels kept to the edges of the window

const tip = document.getElementById("tip");
let anchor = null;

/** A figure that the keyboard reaches: `kind` of evidence is drawn as its mark, `text` is what the note says, `label` what
 * the figure is of where that stands beside it. */
export function why(content, { kind = null, text = null, label = null } = {}) {
  return h("button", { type: "button", class: "why", "aria-describedby": "tip", "aria-label": label, "data-tip": text },
    content, kind && h("i", { class: "evidence", "data-evidence": kind }));
}

/** After the page changed: the note says what its figure says now. */
export function refreshTip() {
  if (anchor) show(anchor);
}

function show(element) {
  anchor = element;
  const text = anchor?.isConnected ? anchor.dataset.tip : undefined;
  tip.hidden = text === undefined;
  if (tip.hidden) anchor = null;
  else {
    if (tip.textContent !== text) tip.textContent = text;
    place();
  }
}

/** Beside a row of a table where there is room, so that its neighbours stay in sight; else above, or below. */
function place() {
  const { clientWidth, clientHeight } = document.documentElement;
  const box = anchor.getBoundingClientRect();
  const beside = anchor.nodeName === "TR" && box.right + tip.offsetWidth + EDGE <= clientWidth;
  const left = beside ? box.right : Math.min(box.left, clientWidth - tip.offsetWidth - EDGE);
  const above = box.top >= tip.offsetHeight ? box.top - tip.offsetHeight : box.bottom;
  const top = beside ? Math.min(box.top, clientHeight - tip.offsetHeight - EDGE) : above;
  tip.style.left = `${Math.max(EDGE, left) + scrollX}px`;
  tip.style.top = `${top + scrollY}px`;
}

function tipped(target) {
  return target.closest?.("[data-tip]") ?? null;
}

function focused() {
  return document.activeElement?.matches(":focus-visible") ? tipped(document.activeElement) : null;
}

document.addEventListener("pointerover", ({ pointerType, target }) => {
  if (pointerType === "mouse" && !tip.contains(target)) show(tipped(target) ?? focused());
});
document.addEventListener("pointerup", ({ pointerType, target }) => {
  if (pointerType !== "mouse" && !tip.contains(target)) show(tipped(target));
});
document.addEventListener("focusin", ({ target }) => show(tipped(target)));
document.addEventListener("focusout", ({ target }) => {
  if (tipped(target) === anchor) show(null);
});
document.addEventListener("keydown", ({ key }) => {
  if (key === "Escape") show(null);
});
