// The figures of one device as a table: live bytes, share, budget, deviation, and how each is known.

import { bounds, isPool, label, serversOf } from "./components.js";
import { h } from "./dom.js";
import { deviates, EVIDENCE, lines, partTip, poolTip } from "./evidence.js";
import { difference, duration, gib, gpuName, percent, signedGib, sum } from "./format.js";
import { why } from "./tip.js";

const STALE_SECONDS = 15; // process lists are read every 5 s

/** The table of one device; `parts` are its components in the order they are drawn, `servers` records by name. */
export function figures(device, parts, servers) {
  const [driver, rest] = [true, false].map((first) => parts
    .filter((part) => !part.server && (part.component === "reserved") === first).map((part) => figure(device, part)));
  const head = (...text) => h("th", { scope: "col" }, text);
  const table = h("table", { class: "figures", "aria-label": `Figures of ${gpuName(device.gpu)}` },
    h("thead", {}, h("tr", {}, head("component"), head("live GiB ", h("small", { class: "share" }, "share")),
      head("budget GiB"), head("deviation"))),
    h("tbody", {}, driver,
      serversOf(device).map((name) => serverFigures(device, parts, name, servers.get(name))), rest));
  return [table, key()];
}

function serverFigures(device, parts, name, server) {
  const own = parts.filter((part) => part.server === name);
  const pool = own.filter((part) => isPool(part.component));
  const likely = device.budget.filter((line) => line.server === name && line.bound === "likely");
  const whole = ["weights", "kv_pool", "runtime"].every((one) => likely.some((line) => line.component === one));
  const figuresOf = (keep) => own.filter(keep).map((part) => figure(device, part, server));
  const poolBytes = sum(pool.map((part) => part.bytes));
  return [
    total(device, {
      name, class: "server", server, parts: own, budget: whole ? sum(likely.map((line) => line.bytes)) : null,
      tip: lines(name, "Live is the sum of its parts on this GPU, which its processes hold.",
        whole ? "The budget is the sum of the likely ones." : "Its budget is not known as a whole."),
    }, { "data-figure": "server", "data-server": name }),
    figuresOf((part) => part.component === "weights"),
    pool.length > 0 && total(device, {
      name: label("kv_pool"), class: "pool", server, parts: pool, budget: bounds(device, name, "kv_pool").likely,
      tip: poolTip(device, poolBytes, name, server),
    }, { "data-figure": "kv_pool", "data-server": name }),
    figuresOf((part) => isPool(part.component)),
    figuresOf((part) => part.component !== "weights" && !isPool(part.component)),
  ];
}

function total(device, { parts, ...rest }, attributes) {
  return row(device, { bytes: sum(parts.map((part) => part.bytes)), ...rest }, attributes);
}

function figure(device, part, server) {
  const range = bounds(device, part.server, part.component);
  return row(device, {
    class: `${part.server ? "of-server" : ""} ${isPool(part.component) ? "of-pool" : ""}`,
    name: label(part.component), bytes: part.bytes, budget: part.budget_bytes ?? range.likely, range, part,
    server, tip: partTip(device, part, server),
  }, { "data-figure": part.component, "data-server": part.server });
}

function row(device, { class: kind, name, bytes, budget, range, part, server, tip }, attributes) {
  const deviation = deviates(server) ? difference(bytes, budget) : null;
  const outside = deviation !== null && range
    && ((range.high !== null && bytes > range.high) || (range.low !== null && bytes < range.low));
  const ranged = range && range.low !== null && range.high !== null;
  const old = part?.age_seconds > STALE_SECONDS;
  return h("tr", { class: kind, ...attributes, "data-bytes": bytes, "data-deviation": deviation, "data-tip": tip },
    h("th", { scope: "row" }, part && h("i", { class: "swatch", "data-component": part.component }),
      why(h("span", { class: "name" }, name), { kind: part?.evidence }),
      old && h("small", { class: "old" }, `${duration(part.age_seconds)} old`)),
    h("td", {}, gib(bytes), " ", h("small", { class: "share" }, percent(bytes / device.total_bytes))),
    h("td", {}, budget === null ? "" : gib(budget),
      ranged && h("small", {}, `${gib(range.low)}\u2013${gib(range.high)}`)),
    h("td", { class: outside && "outside" }, deviation === null ? "" : signedGib(deviation)));
}

function key() {
  return h("p", { class: "foot" }, Object.entries(EVIDENCE).map(([kind, text]) => h("span", { class: "key" },
    why([h("i", { class: "evidence", "data-evidence": kind }), kind], { text }))));
}
