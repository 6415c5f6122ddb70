// One device: headline, the live bar with the budget at the same scale under it, and the figures of both.

import { bounds, inOrder, label, ordered, serversOf } from "./components.js";
import { h } from "./dom.js";
import { figures } from "./figures.js";
import { difference, duration, gib, percent, sum, width } from "./format.js";

const HEADROOM_RULE = 0.1;
const METER_END = 0.3;
const STALE_SECONDS = 5;

/**
 * The card of one device. `faults` are the sentences of collectors that failed on it; `folded` leaves the table of
 * figures to be opened by hand, so that many devices fit on a screen.
 */
export function deviceCard(device, faults, folded) {
  const stale = device.age_seconds !== null && device.age_seconds > STALE_SECONDS;
  return h("article", { class: "card", "data-gpu": device.gpu, "data-stale": stale && "" },
    h("h2", {}, `GPU ${device.gpu}`, h("span", { class: "sub", title: device.uuid }, device.name ?? ""),
      device.memory_kind === "device" ? null : h("span", { class: "tag" }, device.memory_kind)),
    stale && h("p", { class: "call" }, `This reading is ${duration(device.age_seconds)} old.`),
    faults.map((fault) => h("p", { class: "call" }, fault)),
    hardware(device.health).map((fact) => h("p", { class: "call", "data-hardware": "" }, fact)),
    device.notes.map((note) => h("p", { class: "note" }, note)),
    device.components.length ? readings(device, folded) : h("p", { class: "note" }, "No memory reading of this GPU."),
  );
}

/** What is wrong with the GPU itself, a sentence each; the facts are those of the whole GPU, also of a MIG instance. */
function hardware(health) {
  if (health === null) return [];
  const xids = Object.entries(health.xids).filter(([, count]) => count > 0).map(([xid, count]) => `${xid} (${count})`);
  return [
    health.ecc_uncorrected > 0 && `${health.ecc_uncorrected} uncorrectable ECC errors since the driver was loaded.`,
    health.row_remap_failure && "A row remap failed: this GPU needs service.",
    health.row_remap_pending && "A row remap waits for this GPU's next reset.",
    xids.length > 0 && `Xid errors since the agent's start: ${xids.join(", ")}.`,
  ].filter(Boolean);
}

function readings(device, folded) {
  const parts = ordered(device);
  const budgets = serversOf(device).map((server) => budgetBar(device, parts, server));
  const table = figures(device, parts);
  return [
    headline(device),
    h("div", { class: "bars" }, liveBar(device, parts), budgets),
    callouts(device),
    folded ? h("details", {}, h("summary", {}, "figures"), table) : table,
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
    h("div", { class: "axis" }, h("span", {}, "0"), h("span", {}, "10\u202f% rule"), h("span", {}, "30\u202f% or more")));
}

function liveBar(device, parts) {
  const total = device.total_bytes;
  return bar("live", "Live memory by component, figures in the table below", parts.map((part, i) => h("div", {
    class: part.server === (parts[i - 1]?.server ?? "") ? "part" : "part first",
    "data-component": part.component, "data-server": part.server, "data-bytes": part.bytes,
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
      class: line.open ? "part open" : "part", "data-component": line.component, "data-server": server,
      "data-bound": line.bound, "data-bytes": line.bytes, width: width(line.bytes, total),
      title: `Budget${of(server)}: ${line.text}`,
    }, !line.open && h("span", {}, label(line.component)))),
  ], { "data-server": server, "data-over": over && "" }, several && server);
}

/** What the budget bar is made of; a range is its low bound and two open parts up to likely and to high. */
function budgetParts(device, server) {
  const names = new Set(device.budget.filter((line) => line.server === server).map((line) => line.component));
  return inOrder(names).flatMap((component) => {
    const { low, likely, high } = bounds(device, server, component);
    if (likely === null) return [];
    const name = `${label(component)} ${gib(likely)} GiB`;
    if (low === null || high === null) return [{ component, bound: "likely", bytes: likely, text: name }];
    const text = `${name}, between ${gib(low)} and ${gib(high)}`;
    return [
      { component, bound: "low", bytes: low, text },
      { component, bound: "likely", bytes: likely - low, text, open: true },
      { component, bound: "high", bytes: high - likely, text, open: true },
    ];
  });
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

function extremes(device) {
  const { "60s": minute, start } = device.free_min_bytes;
  if (start === undefined) return null;
  return h("p", { class: "foot" },
    `Least free: ${gib(minute)} GiB in the last minute, ${gib(start)} GiB since the agent's start.`);
}

function before(parts, server) {
  const first = parts.findIndex((part) => part.server === server);
  return sum(parts.slice(0, first === -1 ? 0 : first).map((part) => part.bytes));
}

function of(server) {
  return server ? ` in ${server}` : "";
}
