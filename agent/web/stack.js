// A device's memory over the last minutes, its components one on top of the other; of times of which only a recorder
// knows, what was used.

import { inOrder, label } from "./components.js";
import { h, svg } from "./dom.js";
import { lines } from "./evidence.js";
import { clock, duration, gib, gpuName, signedGib, sum } from "./format.js";
import { HEIGHT, picture, plotted, pointAt, round, spanOf, unbroken, xOf } from "./plot.js";

const MINUTE = 60;
const BRIEF = "all "; // of all devices side by side components are told of a time only
const LEAST = 2 ** 30 / 200; // what is printed as 0.00 is left out
const drawn = new Map(); // by name: a look comes only now and then, and the picture of it is kept

/** The chart of one device; nothing of one that was never read. `place`: where on the page, when it is on it twice. */
export function stack(device, { history, pace }, place = "card") {
  const looks = history.ofDevice(device.uuid);
  if (!looks || !device.total_bytes || !looks.points.length) return null;
  const stamp = JSON.stringify([looks.points[0][0], looks.points.at(-1)[0], looks.used[0], history.span, history.gap,
    device.total_bytes]);
  const name = `${place} ${device.uuid}`;
  const before = drawn.get(name);
  const figure = before?.stamp === stamp && plotted(name) ? before.figure : stacked(name, device, looks, { ...history, pace });
  drawn.set(name, { stamp, figure });
  plotted(name).now = device;
  return figure;
}

function stacked(name, { gpu, total_bytes: total }, { components, points: all, used }, { span: chosen, gap, pace }) {
  const first = all[0][0];
  const older = chosen ? used.filter(([time]) => time < first) : [];
  const end = all.at(-1)[0];
  const span = spanOf([...older, ...all], chosen);
  const points = all.filter(([time]) => time >= end - span);
  const names = inOrder(components.filter((name) => name !== "free"));
  const places = names.map((name) => components.indexOf(name));
  const plot = { start: end - span, end, future: 0, pace, gap, label: `Memory of ${gpuName(gpu)} at a time`,
    read: (time) => reading(time, { brief: name.startsWith(BRIEF), now: time === null && plot.now.components, all, points,
      older, total, components, names, places, gap, end, pace }) };
  const x = xOf(plot);
  const under = (runs) => runs.map((run) => steps(run, x, (bytes) => round(HEIGHT - (HEIGHT * bytes) / total))).join("");
  const upTo = (last) => under(unbroken(points.map(([time, sizes]) => [time,
    sizes && sum(places.slice(0, last + 1).map((place) => sizes[place] ?? 0))]), gap));
  const layers = names.map((name, last) => svg("path", { "data-component": name, d: upTo(last) })).reverse();
  const known = points.filter(([, sizes]) => sizes).map(([, sizes]) => sum(places.map((place) => sizes[place] ?? 0)));
  return h("figure", { class: "stack", "data-stack": gpu, "data-key": `stack ${name}`, "data-span": span,
    "data-points": points.length, "data-older": older.length },
  h("figcaption", {}, h("b", {}, gpuName(gpu)), ` of ${gib(total)} GiB`),
  picture(name, plot, lines(
    `Memory in use over ${duration(span * pace)}: at ${clock(end)} ${gib(known.at(-1) ?? null)} of ${gib(total)} GiB.`,
    known.length > 0 && `At most ${gib(Math.max(...known))}, at least ${gib(Math.min(...known))} GiB.`),
  [svg("path", { class: "older", d: under(unbroken([...older.filter(([time]) => time >= end - span), all[0][1] && known.length
    ? [first, total - (all[0][1][components.indexOf("free")] ?? 0)] : [first, null]], gap)) }), layers]));
}

/** The area under what holds from each look to the next. */
function steps(run, x, y) {
  let path = `M${x(run[0][0])} ${HEIGHT}`;
  let before = null;
  for (const [time, bytes] of run) {
    const at = y(bytes);
    if (at !== before) path += `${before === null ? "" : `H${x(time)}`}V${at}`;
    before = at;
  }
  return `${path}H${x(run.at(-1)[0])}V${HEIGHT}Z`;
}

/** What a device held at a time, by component where that is known; without one what it holds `now`. */
function reading(time, { now, brief, all, points, older, total, components, names, places, gap, end, pace }) {
  const at = time ?? end;
  const usedOf = (sizes) => sum(places.map((place) => sizes[place] ?? 0));
  const found = now.length ? [at, components.map((name) => sum(now.filter((part) => part.component === name)
    .map((part) => part.bytes)))] : pointAt(all, at, gap);
  if (!found) {
    const point = pointAt(older, at, gap);
    return { time, items: [{ text: point ? `${gib(point[1])} GiB used, not known of what; ${gib(total - point[1])} free`
      : "not known" }] };
  }
  const used = usedOf(found[1]);
  const before = pointAt(all, found[0] - MINUTE / pace, gap);
  const change = time === null ? changed(points, names, places, pace) : before
    && `, ${signedGib(used - usedOf(before[1]))} over the minute before`;
  return { time: time === null ? null : found[0], items: [
    { text: `${now.length ? "now " : time === null ? `at ${clock(end)} ` : ""}${gib(used)} GiB used, ${gib(total - used)} free${
      change ?? ""}` },
    ...brief && time === null ? [] : names.map((name, i) => [name, found[1][places[i]]]).filter(([, bytes]) => bytes >= LEAST)
      .map(([name, bytes]) => ({ component: name, text: `${label(name)} ${gib(bytes)}` })),
  ] };
}

/** Which component has changed most since the first look that is shown. */
function changed(points, names, places, pace) {
  const known = points.filter(([, sizes]) => sizes);
  const [from, to] = [known[0], known.at(-1)];
  const moves = names.map((name, i) => [name, (to[1][places[i]] ?? 0) - (from[1][places[i]] ?? 0)])
    .sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
  if (!moves.length || Math.abs(moves[0][1]) < LEAST) return null;
  return `; most changed in ${duration((to[0] - from[0]) * pace)}: ${label(moves[0][0])} ${signedGib(moves[0][1])} GiB`;
}
