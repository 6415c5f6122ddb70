// The figures of one device as a table: live bytes, share, budget, deviation, and how each is known.

import { bounds, isPool, label, meaning, serversOf } from "./components.js";
import { h } from "./dom.js";
import { difference, duration, gib, percent, signedGib, sum } from "./format.js";

const STALE_SECONDS = 15; // process lists are read every 5 s

const EVIDENCE = {
  measured: "measured: driver or allocator statistics",
  reported: "reported: the engine's own metrics or log",
  computed: "computed: reported counts or checkpoint bytes times the exact layout",
};

/** The table of one device; `parts` are its components in the order they are drawn. */
export function figures(device, parts) {
  const [driver, rest] = [true, false].map((first) => parts
    .filter((part) => !part.server && (part.component === "reserved") === first).map((part) => figure(device, part)));
  const head = (...text) => h("th", { scope: "col" }, text);
  const table = h("table", { class: "figures" },
    h("thead", {}, h("tr", {}, head("component"), head("live GiB ", h("small", { class: "share" }, "share")),
      head("budget GiB"), head("deviation"))),
    h("tbody", {}, driver, serversOf(device).map((server) => serverFigures(device, parts, server)), rest));
  return [table, key()];
}

function serverFigures(device, parts, server) {
  const own = parts.filter((part) => part.server === server);
  const pool = own.filter((part) => isPool(part.component));
  const likely = device.budget.filter((line) => line.server === server && line.bound === "likely");
  const whole = ["weights", "kv_pool", "runtime"].every((name) => likely.some((line) => line.component === name));
  return [
    total(device, {
      name: server, class: "server", parts: own, budget: whole ? sum(likely.map((line) => line.bytes)) : null,
    }),
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
    h("td", {}, budget === null ? "" : gib(budget),
      ranged && h("small", {}, `${gib(range.low)}\u2013${gib(range.high)}`)),
    h("td", { class: outside && "outside", title: outside && "outside the budget's range" },
      deviation === null ? "" : signedGib(deviation)));
}

function evidence(part) {
  const old = part.age_seconds > STALE_SECONDS;
  const text = `${EVIDENCE[part.evidence]}, ${duration(part.age_seconds)} ago`;
  return [
    h("i", { class: "evidence", "data-evidence": part.evidence, role: "img", "aria-label": text, title: text }),
    old && h("small", { class: "old" }, `${duration(part.age_seconds)} old`),
  ];
}

function key() {
  const marks = Object.entries(EVIDENCE).map(([kind, text]) => h("span", { class: "key", title: text },
    h("i", { class: "evidence", "data-evidence": kind }), kind));
  return h("p", { class: "foot" }, marks);
}
