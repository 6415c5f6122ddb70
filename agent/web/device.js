// One device: headline, its bars, what is wrong with it, and the figures.

import { budgetBar, liveBar } from "./bars.js";
import { ordered, serversOf } from "./components.js";
import { h } from "./dom.js";
import { known, lines, of } from "./evidence.js";
import { figures } from "./figures.js";
import { difference, duration, gib, gpuName, percent, width } from "./format.js";
import { applicationErrors, troubles } from "./health.js";
import { transients } from "./inside.js";
import { notes, prose } from "./notes.js";
import { deviceLeft, lastStep, riskTags } from "./outlook.js";
import { stack } from "./stack.js";
import { why } from "./tip.js";

const METER_RULES = 3; // the rule is at a third of its meter
const STALE_SECONDS = 5;
const HEADROOM = "Room for temporaries and fragmentation: what is free, activations and allocator slack; where these "
  + "are not known apart, what runtime holds above the likely context, graphs and libraries of its budget, up to its "
  + "high bound.";
const KINDS = { unified: "unified memory", mig: "MIG instance" };

export function deviceCard(device, view) {
  return h("article", { class: "card", "data-key": device.uuid, "data-gpu": device.gpu, "data-stale": stale(device) },
    h("h2", {}, gpuName(device.gpu), h("span", { class: "sub" }, identity(device)), riskTags(device)), deviceBody(device, view));
}

/** What a device's card holds under its name; `view` has the faults by target, servers by name, and the host. */
export function deviceBody(device, view) {
  const { faultsOf, host } = view;
  const errors = applicationErrors(device);
  return [
    stale(device) !== null && h("p", { class: "call" }, `This reading is ${duration(device.age_seconds)} old.`),
    troubles(device, faultsOf(device.uuid)).map((text) => h("p", { class: "call", "data-hardware": "" }, prose(text))),
    device.components.length ? readings(device, view) : h("p", { class: "note" }, "No memory reading of this GPU."),
    device.memory_kind === "unified" && host && h("p", { class: "foot" },
      `The host has ${gib(host.total_bytes)} GiB, of which ${gib(host.available_bytes)} GiB are available.`),
    errors && h("p", { class: "foot", "data-hardware": "" }, errors),
    notes(device.notes),
  ];
}

export function identity(device) {
  return [device.name ?? "", " ", device.memory_kind in KINDS && h("span", { class: "tag" }, KINDS[device.memory_kind]),
    " ", h("small", {}, device.uuid)];
}

/** An attribute that greys what is old, null where it is not. */
export function stale(device) {
  return device.age_seconds !== null && device.age_seconds > STALE_SECONDS ? "" : null;
}

function readings(device, view) {
  const { servers } = view;
  const parts = ordered(device);
  return [
    headline(device, view),
    h("div", { class: "bars" }, liveBar(device, parts, servers),
      serversOf(device).map((name) => budgetBar(device, parts, name, servers))),
    deviceLeft(device),
    callouts(device),
    transients(device),
    stack(device, view),
    figures(device, parts, servers),
    extremes(device),
    lastStep(device),
  ];
}

function headline(device, view) {
  const used = difference(device.total_bytes, device.free_bytes);
  const text = lines("Used is the total minus what is free.", `Both are ${known("measured", device.age_seconds)}`,
    device.memory_kind === "unified" && "Of unified memory they are the host's own figures.");
  return h("div", { class: "headline" },
    h("p", { class: "big" }, why(gib(used), { kind: "measured", text, label: `${gib(used)} GiB used of ${gpuName(device.gpu)}` }),
      h("small", {}, ` GiB used of ${gib(device.total_bytes)}`)),
    headroom(device, view));
}

function headroom(device, { rule }) {
  const ratio = device.headroom_ratio;
  if (ratio === null) return h("p", { class: "headroom" }, `Headroom is not known${whyUnknown(device)}.`);
  const low = ratio < rule;
  const end = METER_RULES * rule;
  const named = `${share(rule)} rule`;
  const fill = h("div", { class: "fill", width: width(Math.min(Math.max(ratio, 0), end), end) });
  const text = lines(`Headroom: ${percent(ratio)} of the GPU's memory`, HEADROOM,
    `It is computed from these, as measured; ${duration(device.age_seconds)} ago.`,
    "The rule of the field is 10 to 15 %.");
  return h("div", { class: "headroom", "data-low": low && "", "data-headroom": ratio },
    h("p", {}, why(h("b", {}, percent(ratio)), { kind: "computed", text,
      label: `${percent(ratio)} headroom on ${gpuName(device.gpu)}` }), " headroom",
      low ? `, below the ${named}` : ""),
    h("div", { class: "meter" }, fill, h("div", { class: "rule", width: width(rule, end) })),
    h("div", { class: "axis" }, ["0", named, `${share(end)} or more`].map((text) => h("span", {}, text))));
}

/** A share without needless digits. */
const share = (ratio) => `${Number((100 * ratio).toFixed(2))}\u202f%`;

function whyUnknown(device) {
  const some = (list, server, component) => list.some((one) => one.server === server && one.component === component);
  const without = serversOf(device).filter((name) => !some(device.budget, name, "runtime")
    || !some(device.components, name, "weights") || !some(device.components, name, "kv_used"));
  return without.length ? `: what of the runtime of ${without.join(", ")} is room can't be told` : "";
}

function callouts(device) {
  const some = (bytesOf) => Object.entries(bytesOf).filter(([, bytes]) => bytes > 0);
  return [
    some(device.unexplained_bytes).map(([server, bytes]) => h("p", { class: "call", "data-unexplained": bytes },
      h("b", {}, `${gib(bytes)} GiB unexplained`), `${of(server)}: runtime holds more than the budget's high bound.`)),
    some(device.overattributed_bytes).map(([server, bytes]) => h("p", { class: "call", "data-overattributed": bytes },
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
