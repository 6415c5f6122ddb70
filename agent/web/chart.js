// Used tokens of a pool over the last minutes as an area under the line of the capacity, and behind now the cone of its
// forecast: from the soonest to the likely time at which it is full.

import { h, svg } from "./dom.js";
import { lines } from "./evidence.js";
import { count, duration, width } from "./format.js";

const SPANS = [60, 120, 300, 600]; // the chart shows the smallest that holds all points
const WIDTH = 600;
const HEIGHT = 100;
const TOP = 6; // room above the capacity
const COLUMNS = 300; // more points than so many are drawn as the highest of each

/** The chart of one pool; nothing where its use was never known. `pace`: seconds of its life in one of the clock. */
export function chart(server, pool, { history, pace }) {
  const all = history.of(server, pool);
  const { capacity_tokens: capacity, forecast } = pool;
  if (capacity === null && pool.used_tokens === null) return null; // its tokens are not counted here
  if (!all.some(([, used]) => used !== null)) return null;
  const end = all.at(-1)[0];
  const span = history.span ?? SPANS.find((seconds) => seconds >= end - all[0][0]) ?? SPANS.at(-1);
  const points = thinned(all.filter(([time]) => time >= end - span), span / COLUMNS);
  const known = points.filter(([, used]) => used !== null);
  const top = capacity ?? Math.max(1, ...known.map(([, used]) => used));
  const last = known.at(-1)?.[1] ?? null;
  const left = last !== null && capacity !== null && foreseen(forecast, pace);
  const future = left ? Math.min(2 * span, Math.max(span / 4, left.likely * 1.2)) : 0;
  const x = (time) => round((WIDTH * (time - end + span)) / (span + future));
  const y = (used) => round(HEIGHT - ((HEIGHT - TOP) * used) / top);
  const runs = unbroken(points, history.gap).map((run) => run.map(([time, used]) => `${x(time)} ${y(used)}`));
  const text = described({ span, known, last, capacity, forecast, left });
  return h("figure", { class: "chart", "data-points": known.length, "data-last": last, "data-span": span, "data-tip": text },
    h("figcaption", {}, capacity === null ? "highest" : "capacity", ` ${count(top)} tokens`),
    svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", tabindex: 0,
      "aria-label": text },
    svg("line", { class: "capacity", x1: 0, x2: WIDTH, y1: TOP, y2: TOP }),
    left && cone(left, { x: (seconds) => x(end + seconds), y, last, top, future }),
    left && svg("line", { class: "now", x1: x(end), x2: x(end), y1: 0, y2: HEIGHT }),
    svg("path", { class: "area", d: runs.map((run) => area(run)).join("") }),
    svg("path", { class: "line", d: runs.map((run) => `M${run.join("L")}h0`).join("") })),
    h("div", { class: "axis" },
      h("span", { class: "past", width: width(span, span + future) },
        h("span", {}, `${duration(span)} ago`), h("span", {}, "now")),
      left && h("span", {}, `in ${duration(future * pace)}`)),
  );
}

/** When it is full, in seconds of the clock; false where that is not foreseen, or it is full already. */
function foreseen(forecast, pace) {
  const { likely, early } = forecast?.exhaustion_seconds ?? {};
  return likely > 0 && { likely: likely / pace, early: Math.min(early ?? likely, likely) / pace };
}

function cone({ likely, early }, { x, y, last, top, future }) {
  const from = `${x(0)} ${y(last)}`;
  const to = (seconds) => (seconds <= future ? `${x(seconds)} ${TOP}`
    : `${WIDTH} ${y(last + ((top - last) * future) / seconds)}`);
  const corner = early <= future && likely > future ? `L${WIDTH} ${TOP}` : "";
  return [
    svg("path", { class: "cone", "data-early": early, "data-likely": likely,
      d: `M${from}L${to(early)}${corner}L${to(likely)}Z` }),
    svg("path", { class: "likely", d: `M${from}L${to(likely)}` }),
  ];
}

/** What the chart shows, in words. */
function described({ span, known, last, capacity, forecast, left }) {
  const used = known.map((point) => point[1]);
  return lines(
    `Used tokens over ${duration(span)}: ${count(used[0])} at first, now ${count(last)} of ${count(capacity)}.`,
    `At most ${count(Math.max(...used))}, at least ${count(Math.min(...used))}.`,
    forecast?.exhausted && "It is full.",
    left && `Full in ${duration(forecast.exhaustion_seconds.likely)} at the present course${left.early < left.likely
      ? `, in ${duration(forecast.exhaustion_seconds.early)} at the soonest` : ""}.`);
}

/** The highest of each `step` seconds; a silence stays one. */
function thinned(points, step) {
  if (points.length <= COLUMNS) return points;
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

function area(run) {
  const [left] = run[0].split(" ");
  const [right] = run.at(-1).split(" ");
  return `M${left} ${HEIGHT}L${run.join("L")}L${right} ${HEIGHT}Z`;
}

/** Runs of points with neither an unknown value nor a long silence in between. */
function unbroken(points, gap) {
  const runs = [];
  let previous = -Infinity;
  for (const [time, used] of points) {
    if (used === null) previous = -Infinity;
    else {
      if (time - previous > gap) runs.push([]);
      runs.at(-1).push([time, used]);
      previous = time;
    }
  }
  return runs;
}

function round(number) {
  return Math.round(number * 100) / 100;
}
