// What a person has opened, by key: an update neither closes it nor opens another. What is closed is not drawn.

import { h } from "./dom.js";

const opened = new Set();

/** A part to be opened by hand; `body` gives its content and is called only while it is open. */
export function fold(key, summary, body, attributes = {}) {
  const open = opened.has(key);
  return h("details", { ...attributes, "data-key": key, open: open && "" },
    h("summary", {}, summary), open && body());
}

/** Open and close by click or key; `redraw` draws the page anew. */
export function onFold(redraw) {
  document.addEventListener("click", (event) => {
    const folded = event.target.closest("summary")?.parentElement;
    if (!folded) return;
    event.preventDefault();
    if (!opened.delete(folded.dataset.key)) opened.add(folded.dataset.key);
    redraw();
  });
}
