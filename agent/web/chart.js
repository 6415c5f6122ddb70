// Used tokens of a pool over the last minutes as an area under the line of the capacity, and behind now the cone of its
// forecast: from the soonest to the likely time at which it is full.

import { h, svg } from "./dom.js";
import { lines } from "./evidence.js";
import { count, difference, duration, percent, rate } from "./format.js";
import { hasRoom } from "./outlook.js";
import { HEIGHT, picture, pointAt, round, spanOf, thinned, unbroken, WIDTH, xOf } from "./plot.js";

const TOP = 6; // room above the capacity
const MINUTE = 60;
const KNOWN_RATIO = 0.9; // of the time that is shown: less is said

/** The chart of one pool; nothing where its use was never known. `pace`: seconds of its life in one of the clock. */
export function chart(server, pool, { history, pace }) {
  const all = history.of(server, pool);
  const { capacity_tokens: capacity, forecast } = pool;
  if (capacity === null && pool.used_tokens === null) return null; // its tokens are not counted here
  if (!all.some(([, used]) => used !== null)) return null;
  const end = all.at(-1)[0];
  const span = spanOf(all, history.span);
  const points = thinned(all.filter(([time]) => time >= end - span), span);
  const known = points.filter(([, used]) => used !== null);
  const top = capacity ?? Math.max(1, ...known.map(([, used]) => used));
  const last = all.at(-1)[1];
  const left = last !== null && capacity !== null && foreseen(forecast, pace);
  const future = left ? Math.min(2 * span, Math.max(span / 4, left.likely * 1.2)) : 0;
  const plot = { start: end - span, end, future, pace, gap: history.gap, label: `Tokens of ${server} at a time`,
    read: (time) => reading(all, known, { time, span, capacity, gap: history.gap, pace }) };
  const x = xOf(plot);
  const y = (used) => round(HEIGHT - ((HEIGHT - TOP) * used) / top);
  const runs = unbroken(points, history.gap).map((run) => run.map(([time, used]) => `${x(time)} ${y(used)}`));
  const text = described({ span: span * pace, known, last, pool, left });
  return h("figure", { class: "chart", "data-points": known.length, "data-last": last, "data-span": span,
    "data-end": end },
    h("figcaption", {}, capacity === null ? "highest" : "capacity", ` ${count(top)} tokens`),
    picture(`pool ${JSON.stringify([server, pool.replica, pool.kind])}`, plot, text, [
      svg("line", { class: "capacity", x1: 0, x2: WIDTH, y1: TOP, y2: TOP }),
      left && cone(left, { x: (seconds) => x(end + seconds), y, last, top, future }),
      left && svg("line", { class: "now", x1: x(end), x2: x(end), y1: 0, y2: HEIGHT }),
      svg("path", { class: "area", d: runs.map(area).join("") }),
      svg("path", { class: "line", d: runs.map((run) => `M${run.join("L")}h0`).join("") }),
    ]));
}

/** What is known of a time, or without one of all that is shown. */
function reading(all, known, { time, span, capacity: latest, gap, pace }) {
  if (time === null) {
    const used = known.map((point) => point[1]);
    const seconds = used.length && known.at(-1)[0] - known[0][0];
    const when = seconds < KNOWN_RATIO * span ? `the ${duration(seconds * pace)} that are known` : duration(span * pace);
    return { items: used.length ? [{ text: `between ${count(Math.min(...used))} and ${count(Math.max(...used))} tokens in ${
      when}` }] : [] };
  }
  const point = pointAt(all, time, gap);
  if (!point) return { time, items: [{ text: "its use is not known" }] };
  const [at, used, cached = null, capacity = latest] = point;
  const before = pointAt(all, at - MINUTE / pace, gap);
  return { time: at, items: [
    { component: "kv_used", text: `used ${count(used)}${capacity ? ` (${percent(used / capacity)})` : ""}` },
    cached !== null && { component: "kv_cached", text: `cached ${count(cached)}` },
    capacity !== null && { component: "kv_free", text: `${cached === null ? "available" : "free"} ${
      count(capacity - used - (cached ?? 0))}` },
    before && { text: `${rate(difference(used, before[1]) / (at - before[0]) / pace)} tokens/s over the minute before` },
  ].filter((item) => item) };
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

function area(run) {
  const [left] = run[0].split(" ");
  const [right] = run.at(-1).split(" ");
  return `M${left} ${HEIGHT}L${run.join("L")}L${right} ${HEIGHT}Z`;
}

function described({ span, known, last, pool, left }) {
  const { capacity_tokens: capacity, forecast } = pool;
  const used = known.map((point) => point[1]);
  return lines(
    `Used tokens over ${duration(span)}: ${count(used[0])} at first, now ${count(last)} of ${count(capacity)}.`,
    `At most ${count(Math.max(...used))}, at least ${count(Math.min(...used))}.`,
    forecast?.exhausted && (hasRoom(pool) ? "It ran out." : "It is full."),
    left && `Full in ${duration(forecast.exhaustion_seconds.likely)} at the present course${left.early < left.likely
      ? `, in ${duration(forecast.exhaustion_seconds.early)} at the soonest` : ""}.`);
}
