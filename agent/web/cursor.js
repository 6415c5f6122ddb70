// A time that is read off all charts at once: by pointer, by touch, or by the arrow keys on a chart's slider.

import { h, svg, update } from "./dom.js";
import { clock, duration } from "./format.js";
import { HEIGHT, plotOf, plotsOf, xOf } from "./plot.js";

const KEYS = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -6, PageUp: 6 };
const STEPS = 60; // from one end to the other by arrow keys

let chosen = null; // the time, null while there is none
let waiting = false;
const painted = new WeakMap(); // what each slider shows

/** Show the time that is chosen on every chart that is drawn; called after the page was drawn, too. */
export function paintCursor() {
  waiting = false;
  for (const [slider, plot] of plotsOf([...document.querySelectorAll("[data-plot]")])) paint(slider, plot);
}

function paint(slider, plot) {
  const { start, end, gap, pace, now, read } = plot;
  const near = gap / 2; // charts end at their newest look, one a little before another
  const isOff = chosen !== null && (chosen < start - near || chosen > end + near);
  const time = chosen === null || isOff ? null : Math.min(Math.max(chosen, start), end);
  const before = painted.get(slider);
  const off = isOff ? clock(chosen) : null;
  if (before?.plot === plot && before.time === time && before.off === off && before.now === now) return;
  painted.set(slider, { plot, time, off, now });
  const { time: found = null, items } = isOff ? { items: [{ text: `not known of ${off}` }] } : read(time);
  const ago = found === null ? "" : `${duration((end - found) * pace)} before now`;
  const head = ago && pace === 1 ? `${clock(found)}, ${ago}` : ago;
  const x = xOf(plot)(time);
  const figure = slider.closest("figure");
  update(figure.querySelector(".cursor"), svg("g", { class: "cursor" },
    time !== null && svg("line", { x1: x, x2: x, y1: 0, y2: HEIGHT })));
  update(figure.querySelector(".readout"), h("div", { class: "readout", "data-time": found },
    head && [h("b", {}, head), " "], items.map(({ component, text }) => [h("span", { class: "key" },
      component && h("i", { class: "swatch", "data-component": component }), text), " "])));
  const words = items.map(({ text }) => text).join(", ");
  const state = {
    "aria-valuemin": Math.round(start - end), "aria-valuemax": 0, "aria-valuenow": Math.round((time ?? end) - end),
    "aria-valuetext": head ? `${head}: ${words}` : words,
  };
  for (const name in state) if (slider.getAttribute(name) !== String(state[name])) slider.setAttribute(name, state[name]);
}

function choose(time) {
  chosen = time;
  if (!waiting) requestAnimationFrame(paintCursor);
  waiting = true;
}

function point(slider, clientX) {
  const { start, end, future } = plotOf(slider);
  const { left, width } = slider.getBoundingClientRect();
  choose(Math.min(end, start + ((clientX - left) / width) * (end - start + future)));
}

const sliderAt = ({ target }) => target.closest?.("[data-plot]");

for (const kind of ["pointermove", "pointerdown"]) {
  document.addEventListener(kind, (event) => {
    if (sliderAt(event)) point(sliderAt(event), event.clientX);
  });
}
document.addEventListener("pointerout", (event) => {
  if (event.pointerType === "mouse" && sliderAt(event) && !sliderAt({ target: document.activeElement })) choose(null);
});
document.addEventListener("focusout", (event) => {
  if (sliderAt(event)) choose(null);
});
document.addEventListener("keydown", (event) => {
  const slider = sliderAt(event);
  if (!slider || event.ctrlKey || event.metaKey || event.altKey) return;
  const { start, end } = plotOf(slider);
  const step = KEYS[event.key] * (end - start) / STEPS;
  if (event.key === "Escape" || event.key === "End") choose(null);
  else if (event.key === "Home") choose(start);
  else if (step) choose(Math.min(end, Math.max(start, (chosen ?? end) + step)));
  else return;
  event.preventDefault();
});
