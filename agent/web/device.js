// One device: headline, the live bar with the budget at the same scale under it, and the figures of both.

import { inOrder, isPool, label, meaning, ordered, serversOf } from "./components.js";
import { h } from "./dom.js";
import { difference, duration, gib, percent, signedGib, sum, UNKNOWN, width } from "./format.js";

const HEADROOM_RULE = 0.1;
const METER_END = 0.3;
const STALE_SECONDS = 5;
const STALE_PART_SECONDS = 15; // process lists are read every 5 s

const EVIDENCE = {
  measured: "measured: driver or allocator statistics",
  reported: "reported: the engine's own metrics or log",
  computed: "computed: reported counts or checkpoint bytes times the exact layout",
};

/**
 * The card of one device. `faults` are the sentences of collectors that failed on it; `folded` leaves the table of
 * figures to be opened by hand, so that many devices fit on a screen.
 */
export function deviceCard(device, faults, folded) {
  const stale = device.age_seconds !== null && device.age_seconds > STALE_SECONDS;
  return h("article", { class: "card", "data-gpu": device.index, "data-stale": stale && "" },
    h("h2", {}, `GPU ${device.index}`, h("span", { class: "sub", title: device.uuid }, device.name ?? ""),
      device.memory_kind === "device" ? null : h("span", { class: "tag" }, device.memory_kind)),
    stale && h("p", { class: "call" }, `This reading is ${duration(device.age_seconds)} old.`),
    faults.map((fault) => h("p", { class: "call" }, fault)),
    device.components.length ? readings(device, folded) : h("p", { class: "note" }, "No memory reading of this GPU."),
  );
}

function readings(device, folded) {
  const parts = ordered(device);
  return [
    headline(device),
    h("div", { class: "bars" }, liveBar(device, parts), serversOf(device).map((name) => budgetBar(device, parts, name))),
    callouts(device),
    folded ? h("details", {}, h("summary", {}, "figures"), figures(device, parts)) : figures(device, parts),
    extremes(device),
  ];
}

function headline(device) {
  const used = difference(device.total_bytes, device.free_bytes);
  return h("div", { class: "headline" },
    h("p", { class: "big" }, gib(used), h("small", {}, ` GiB used of ${gib(device.total_bytes)}`)),
    headroom(device.headroom_ratio));
}

function headroom(ratio) {
  if (ratio === null) return h("p", { class: "headroom" }, "Headroom is not known.");
  const low = ratio < HEADROOM_RULE;
  const fill = h("div", { class: "fill", width: width(Math.min(Math.max(ratio, 0), METER_END), METER_END) });
  return h("div", { class: "headroom", "data-low": low && "", "data-headroom": ratio },
    h("p", {}, h("b", {}, percent(ratio)), " headroom", low ? ", below the 10\u202f% rule" : ""),
    h("div", { class: "meter", title: "Headroom from 0 to 30 %, the mark is the 10 % rule" },
      fill, h("div", { class: "rule", width: width(HEADROOM_RULE, METER_END) })),
    h("div", { class: "axis" }, h("span", {}, "0"), h("span", {}, "10\u202f% rule"), h("span", {}, "30\u202f%")));
}

function liveBar(device, parts) {
  const total = device.total_bytes;
  return bar("live", "Live memory by component, figures in the table below", parts.map((part, i) => h("div", {
    class: part.server === (parts[i - 1]?.server ?? "") ? "part" : "part first", "data-component": part.component, "data-server": part.server, "data-bytes": part.bytes,
    width: width(part.bytes, total),
    title: `${label(part.component)}${of(part.server)}: ${gib(part.bytes)} GiB, ${percent(part.bytes / total)}`,
  }, h("span", {}, label(part.component)))));
}

/** The budget of one server, starting where its live parts start, so that the two are seen apart at a glance. */
function budgetBar(device, parts, server) {
  const lines = budgetParts(device, server);
  if (!lines.length) return null;
  const total = device.total_bytes;
  const start = before(parts, server);
  const over = start + sum(lines.map((line) => line.bytes)) > total;
  const several = serversOf(device).length > 1;
  return bar("budget", `Budget of ${server} at the same scale`, [
    h("div", { class: "gap", width: width(start, total) }),
    lines.map((line) => h("div", {
      class: "part", "data-component": line.component, "data-server": server, "data-bytes": line.bytes,
      "data-bound": line.bound, width: width(line.bytes, total), title: `Budget${of(server)}: ${line.text}`,
    }, line.bound === "likely" && h("span", {}, label(line.component)))),
  ], { "data-server": server, "data-over": over && "" }, several && server);
}

/** What the budget bar is made of; a range is its low bound and two further parts up to likely and to high. */
function budgetParts(device, server) {
  const names = new Set(device.budget.filter((line) => line.server === server).map((line) => line.component));
  return inOrder(names).flatMap((component) => {
    const { low, likely, high } = bounds(device, server, component);
    if (likely === null) return [];
    const text = `${label(component)} ${gib(likely)} GiB${low === null ? "" : `, between ${gib(low)} and ${gib(high)}`}`;
    if (low === null || high === null) return [{ component, bound: "likely", bytes: likely, text }];
    return [
      { component, bound: "low", bytes: low, text },
      { component, bound: "likely", bytes: likely - low, text },
      { component, bound: "high", bytes: high - likely, text },
    ];
  });
}

function bounds(device, server, component) {
  const of = (bound) => device.budget.find(
    (line) => line.server === server && line.component === component && line.bound === bound)?.bytes ?? null;
  return { low: of("low"), likely: of("likely"), high: of("high") };
}

function bar(row, description, parts, attributes = {}, name = null) {
  return [
    h("div", { class: "row", title: name }, row, name && h("small", {}, ` ${name}`)),
    h("div", { class: "bar", "data-row": row, role: "img", "aria-label": description, ...attributes }, parts),
  ];
}

function callouts(device) {
  const unexplained = Object.entries(device.unexplained_bytes).filter(([, bytes]) => bytes > 0);
  const over = Object.entries(device.overattributed_bytes).filter(([, bytes]) => bytes > 0);
  return [
    unexplained.map(([server, bytes]) => h("p", { class: "call", "data-unexplained": bytes },
      h("b", {}, `${gib(bytes)} GiB unexplained`), `${of(server)}: runtime holds more than the budget's high bound.`)),
    over.map(([server, bytes]) => h("p", { class: "call", "data-overattributed": bytes },
      h("b", {}, `${gib(bytes)} GiB over-attributed`),
      `${of(server)}: its named parts exceed what its processes hold, so a weights or KV figure is wrong.`)),
  ];
}

function figures(device, parts) {
  const rows = parts.filter((part) => !part.server && part.component === "reserved").map((part) => figure(device, part));
  for (const server of serversOf(device)) rows.push(...serverFigures(device, parts, server));
  rows.push(...parts.filter((part) => !part.server && part.component !== "reserved").map((part) => figure(device, part)));
  const head = (...text) => h("th", { scope: "col" }, text);
  return h("table", { class: "figures" },
    h("thead", {}, h("tr", {}, head("component"), head("live GiB ", h("small", { class: "share" }, "share")),
      head("budget GiB"), head("deviation"))),
    h("tbody", {}, rows));
}

function serverFigures(device, parts, server) {
  const own = parts.filter((part) => part.server === server);
  const pool = own.filter((part) => isPool(part.component));
  const likely = device.budget.filter((line) => line.server === server && line.bound === "likely");
  const whole = ["weights", "kv_pool", "runtime"].every((name) => likely.some((line) => line.component === name));
  return [
    total(device, { name: server, class: "server", parts: own, budget: whole ? sum(likely.map((line) => line.bytes)) : null }),
    own.filter((part) => part.component === "weights").map((part) => figure(device, part)),
    pool.length ? total(device, {
      name: label("kv_pool"), class: "pool", parts: pool, budget: bounds(device, server, "kv_pool").likely,
      component: "kv_pool", server,
    }) : [],
    pool.map((part) => figure(device, part)),
    own.filter((part) => part.component !== "weights" && !isPool(part.component)).map((part) => figure(device, part)),
  ].flat();
}

/** The row of a sum of parts. */
function total(device, { name, class: kind, parts, budget, component, server }) {
  const bytes = sum(parts.map((part) => part.bytes));
  return row(device, { class: kind, name, title: component && meaning(component), bytes, budget },
    { "data-figure": component ?? "server", "data-server": server ?? name });
}

function figure(device, part) {
  const range = bounds(device, part.server, part.component);
  return row(device, {
    class: `${part.server ? "of-server" : ""} ${isPool(part.component) ? "of-pool" : ""}`,
    name: label(part.component), title: meaning(part.component), bytes: part.bytes,
    budget: part.budget_bytes ?? range.likely, range, part,
  }, { "data-figure": part.component, "data-server": part.server });
}

function row(device, { class: kind, name, title, bytes, budget, range, part }, attributes) {
  const deviation = difference(bytes, budget);
  const outside = range && ((range.high !== null && bytes > range.high) || (range.low !== null && bytes < range.low));
  const ranged = range && range.low !== null && range.high !== null;
  return h("tr", { class: kind, ...attributes, "data-bytes": bytes, "data-deviation": deviation },
    h("th", { scope: "row", title }, part && h("i", { class: "swatch", "data-component": part.component }),
      h("span", { class: "name" }, name), part && evidence(part)),
    h("td", {}, gib(bytes), " ", h("small", { class: "share" }, percent(bytes / device.total_bytes))),
    h("td", {}, budget === null ? "" : gib(budget), ranged && h("small", {}, `${gib(range.low)}\u2013${gib(range.high)}`)),
    h("td", { class: outside && "outside", title: outside && "outside the budget's range" },
      deviation === null ? "" : signedGib(deviation)));
}

function evidence(part) {
  const old = part.age_seconds > STALE_PART_SECONDS;
  const text = `${EVIDENCE[part.evidence]}, ${duration(part.age_seconds)} ago`;
  return [
    h("i", { class: "evidence", "data-evidence": part.evidence, role: "img", "aria-label": text, title: text }),
    old && h("small", { class: "old" }, `${duration(part.age_seconds)} old`),
  ];
}

function extremes(device) {
  const free = (window) => device.free_min_bytes[window];
  const figures = free("start") === undefined ? UNKNOWN
    : `${gib(free("60s"))} GiB in the last minute, ${gib(free("start"))} GiB since the agent's start`;
  return [
    h("p", { class: "foot" }, `Least free: ${figures}.`),
    h("p", { class: "foot keys" }, Object.keys(EVIDENCE).map((kind) => h("span", { class: "key", title: EVIDENCE[kind] },
      h("i", { class: "evidence", "data-evidence": kind }), kind))),
  ];
}

function before(parts, server) {
  const first = parts.findIndex((part) => part.server === server);
  return sum(parts.slice(0, first === -1 ? 0 : first).map((part) => part.bytes));
}

function of(server) {
  return server ? ` in ${server}` : "";
}
