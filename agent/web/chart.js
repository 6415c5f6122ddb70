// Used tokens of each pool over the last minutes: kept here, drawn as an area under the line of the capacity.

import { h, svg } from "./dom.js";
import { count, duration } from "./format.js";

const KEPT_SECONDS = 600;
const SPANS = [60, 120, 300, KEPT_SECONDS]; // the chart shows the smallest that holds all points
const GAP_SECONDS = 30; // a longer silence is drawn as a gap, as is every unknown value
const WIDTH = 600;
const HEIGHT = 100;
const TOP = 6; // room above the capacity

/** Points of all pools, loaded once from the agent's history and then extended by each snapshot. */
export class History {
  #points = new Map();

  load(document) {
    this.#points.clear();
    for (const pool of document.pools) this.#points.set(key(pool.server, pool), pool.points);
  }

  /** A pool that the snapshot lacks has no known use at its time; one that lacked it for ten minutes is forgotten. */
  extend({ time: now, servers }) {
    const used = new Map(servers.flatMap(
      (server) => server.pools.map((pool) => [key(server.name, pool), pool.used_tokens])));
    for (const name of new Set([...this.#points.keys(), ...used.keys()])) {
      const points = this.#points.get(name) ?? [];
      while (points.length && points[0][0] < now - KEPT_SECONDS) points.shift();
      while (points.length && points.at(-1)[0] >= now) points.pop();
      points.push([now, used.get(name) ?? null]);
      if (used.has(name) || points.some(([, tokens]) => tokens !== null)) this.#points.set(name, points);
      else this.#points.delete(name);
    }
  }

  of(server, pool) {
    return this.#points.get(key(server, pool)) ?? [];
  }
}

/** The chart of one pool; nothing where its use was never known. */
export function chart(points, capacity) {
  const knownPoints = points.filter(([, used]) => used !== null);
  if (!knownPoints.length) return null;
  const end = points.at(-1)[0];
  const span = SPANS.find((seconds) => seconds >= end - points[0][0]) ?? KEPT_SECONDS;
  const top = capacity ?? Math.max(1, ...knownPoints.map(([, used]) => used));
  const x = (time) => round(WIDTH * (1 - (end - time) / span));
  const y = (used) => round(HEIGHT - ((HEIGHT - TOP) * used) / top);
  const runs = unbroken(points).map((run) => run.map(([time, used]) => `${x(time)} ${y(used)}`));
  const last = knownPoints.at(-1)[1];
  return h("figure", { class: "chart", "data-points": knownPoints.length, "data-last": last },
    h("figcaption", {}, capacity === null ? "highest" : "capacity", ` ${count(top)} tokens`),
    svg("svg", {
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img",
      "aria-label": `used tokens over ${duration(span)}, now ${count(last)} of ${count(capacity)}`,
    },
    svg("line", { class: "capacity", x1: 0, x2: WIDTH, y1: TOP, y2: TOP }),
    svg("path", { class: "area", d: runs.map((run) => area(run)).join("") }),
    svg("path", { class: "line", d: runs.map((run) => `M${run.join("L")}h0`).join("") })),
    h("div", { class: "axis" }, h("span", {}, `${duration(span)} ago`), h("span", {}, "now")),
  );
}

function key(server, pool) {
  return JSON.stringify([server, pool.replica, pool.kind]);
}

function area(run) {
  const [left] = run[0].split(" ");
  const [right] = run.at(-1).split(" ");
  return `M${left} ${HEIGHT}L${run.join("L")}L${right} ${HEIGHT}Z`;
}

/** Runs of points with neither an unknown value nor a long silence in between. */
function unbroken(points) {
  const runs = [];
  let previous = -Infinity;
  for (const [time, used] of points) {
    if (used === null) previous = -Infinity;
    else {
      if (time - previous > GAP_SECONDS) runs.push([]);
      runs.at(-1).push([time, used]);
      previous = time;
    }
  }
  return runs;
}

function round(number) {
  return Math.round(number * 100) / 100;
}
