// A device's memory as bars: its live parts, the budget of each server at the same scale under them, and the thin bar
// of the overview, where all devices have one scale.

import { bounds, inOrder, label, ordered, serversOf } from "./components.js";
import { h } from "./dom.js";
import { budgetTip, partTip } from "./evidence.js";
import { difference, gib, sum, width } from "./format.js";

/** Live parts, labelled where there is room; `servers` are the records of all servers by name. */
export function liveBar(device, parts, servers) {
  return row("live", null, bar("live", "Live memory by component, figures in the table below",
    parts.map((one, i) => part(device, one, parts[i - 1], {
      "data-tip": partTip(device, one, servers.get(one.server)) }, h("span", {}, label(one.component))))));
}

/** The thin bar of the overview: as wide as the device's share of the largest, `most`. */
export function thinBar(device, most) {
  const used = difference(device.total_bytes, device.free_bytes);
  const parts = ordered(device);
  return bar("overview", `${gib(used)} of ${gib(device.total_bytes)} GiB used`,
    parts.map((one, i) => part(device, one, parts[i - 1])), { width: width(device.total_bytes, most) });
}

function part(device, one, before, attributes, text) {
  return h("div", {
    class: one.server === (before?.server ?? "") ? "part" : "part first",
    "data-component": one.component, "data-server": one.server, "data-bytes": one.bytes,
    width: width(one.bytes, device.total_bytes), ...attributes,
  }, text);
}

/** The budget of one server, starting where its live parts start, so that the two are seen apart at a glance. */
export function budgetBar(device, parts, server, servers) {
  const pieces = budgetParts(device, server);
  if (!pieces.length) return null;
  const total = device.total_bytes;
  const start = before(parts, server);
  const over = start + sum(pieces.map((piece) => piece.bytes)) > total;
  return row("budget", serversOf(device).length > 1 && server, bar("budget", `Budget of ${server} at the same scale`, [
    h("div", { class: "gap", width: width(start, total) }),
    pieces.map(({ component, bound, bytes, open }) => h("div", {
      class: open ? "part open" : "part", "data-component": component, "data-server": server, "data-bound": bound,
      "data-bytes": bytes, width: width(bytes, total),
      "data-tip": budgetTip(device, component, server, servers.get(server)),
    }, !open && h("span", {}, label(component)))),
  ], { "data-server": server, "data-over": over && "" }));
}

/** What the budget bar is made of; a range is its low bound and two open parts up to likely and to high. */
function budgetParts(device, server) {
  const names = new Set(device.budget.filter((line) => line.server === server).map((line) => line.component));
  return inOrder(names).flatMap((component) => {
    const { low, likely, high } = bounds(device, server, component);
    if (likely === null) return [];
    if (low === null || high === null) return [{ component, bound: "likely", bytes: likely }];
    return [
      { component, bound: "low", bytes: low },
      { component, bound: "likely", bytes: likely - low, open: true },
      { component, bound: "high", bytes: high - likely, open: true },
    ];
  });
}

function row(kind, name, content) {
  return [h("div", { class: "row" }, kind, name && h("small", {}, ` ${name}`)), content];
}

function bar(kind, description, parts, attributes = {}) {
  return h("div", { class: "bar", "data-row": kind, role: "img", "aria-label": description, ...attributes }, parts);
}

function before(parts, server) {
  const first = parts.findIndex((one) => one.server === server);
  return sum(parts.slice(0, first === -1 ? 0 : first).map((one) => one.bytes));
}
