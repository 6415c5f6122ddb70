// What all charts over time share: how far they go back, their scale, lines with gaps, and a slider over them by which
// a time is chosen.

import { h, svg } from "./dom.js";
import { duration, width } from "./format.js";

export const WIDTH = 600;
export const HEIGHT = 100;
const COLUMNS = 300; // more points than so many are drawn as the highest of each
const SPANS = [60, 120, 300, 600, 900, 1800]; // a chart shows the smallest that holds all points
const plots = new Map(); // what is drawn now, by name

/** How many seconds a chart shows: those chosen, else what holds its points, at most ten minutes. */
export function spanOf(points, chosen) {
  const all = points.at(-1)[0] - points[0][0];
  return chosen ?? SPANS.find((seconds) => seconds >= Math.min(all, 600));
}

/** The picture of a chart with its slider, its axis and the line that reads it. `plot`: `start`, `end`, `future` (seconds
 * behind the end), `pace` (seconds of the node's life in one of the clock), `gap`, `label`, and `read(time)`: what is
 * known of a time, null for what to say without one. */
export function picture(name, plot, text, content) {
  const { start, end, future, pace } = plot;
  plots.set(name, plot);
  return [
    h("div", { class: "plot" },
      svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": text },
        content, svg("g", { class: "cursor" })),
      h("div", { class: "scrub", "data-plot": name, role: "slider", tabindex: 0, "aria-label": plot.label })),
    h("div", { class: "axis" },
      h("span", { class: "past", width: width(end - start, end - start + future) },
        h("span", {}, `${duration((end - start) * pace)} ago`), h("span", {}, "now")),
      future > 0 && h("span", {}, `in ${duration(future * pace)}`)),
    h("div", { class: "readout" }),
  ];
}

/** The plot of each slider that is on the page; those of others are forgotten. */
export function plotsOf(sliders) {
  const names = new Set(sliders.map((slider) => slider.dataset.plot));
  for (const name of plots.keys()) if (!names.has(name)) plots.delete(name);
  return sliders.map((slider) => [slider, plotOf(slider)]);
}

export const plotOf = (slider) => plots.get(slider.dataset.plot);

export const plotted = (name) => plots.get(name);

export function xOf({ start, end, future }) {
  return (time) => round((WIDTH * (time - start)) / (end - start + future));
}

/** The newest point at a time, null where none is known then. */
export function pointAt(points, time, gap) {
  const found = points.findLast((point) => point[0] <= time + 0.5);
  return found && found[1] !== null && time - found[0] <= gap ? found : null;
}

/** The highest of each `step` seconds; a silence stays one. */
export function thinned(points, span) {
  if (points.length <= COLUMNS) return points;
  const step = span / COLUMNS;
  const kept = [];
  for (const point of points) {
    const before = kept.at(-1);
    const same = before && Math.floor(before[0] / step) === Math.floor(point[0] / step);
    if (!same || (before[1] === null) !== (point[1] === null)) kept.push(point);
    else if (point[1] >= before[1]) kept[kept.length - 1] = point;
  }
  if (kept.at(-1) !== points.at(-1)) kept.push(points.at(-1));
  return kept;
}

/** Runs of points with neither an unknown value nor a long silence in between. */
export function unbroken(points, gap) {
  const runs = [];
  let previous = -Infinity;
  for (const [time, value] of points) {
    if (value === null) previous = -Infinity;
    else {
      if (time - previous > gap) runs.push([]);
      runs.at(-1).push([time, value]);
      previous = time;
    }
  }
  return runs;
}

export function round(number) {
  return Math.round(number * 100) / 100;
}
