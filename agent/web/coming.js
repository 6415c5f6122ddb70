// What is about to go wrong: every server and GPU with a level of risk above ok, the gravest first, with the numbers that
// say so and the page that says what to do.

import { h } from "./dom.js";
import { count, duration, gib, gpuName, percent } from "./format.js";
import { deviceSoonest, poolSoonest, riskTag } from "./outlook.js";
import { serverLink } from "./route.js";

const LEVELS = ["watch", "at_risk", "critical"];
const RUNBOOKS = "https://github.com/vramscope/vramscope/blob/main/docs/runbooks";
const PAGES = {
  pool_exhaustion: "kv-pool-exhausting", preemption_storm: "preemption-storm", no_transient_room: "no-transient-room",
  low_headroom: "headroom-low", device_creep: "device-creep", budget_mismatch: "budget-deviation",
  foreign_process: "foreign-process", hidden_memory: "hidden-memory", fragmentation: "fragmentation-high",
  sleep_residue: "sleep-residue", restart_loop: "restarted-after-memory-signs", host_memory: "unified-memory-pressure",
  hardware: "device-memory-errors", blind: "server-blind",
};

/** The list of these servers and devices; `links` leads from a server to its view. */
export function coming(servers, devices, { links }) {
  const found = [
    ...servers.map((server) => ({ ...server, is: server.name, left: poolSoonest(server),
      name: links ? serverLink(server.name) : server.name })),
    ...devices.map((device) => ({ ...device, is: device.uuid, left: deviceSoonest(device), name: gpuName(device.gpu) })),
  ].filter(({ risk }) => risk && LEVELS.includes(risk.level));
  found.sort((a, b) => LEVELS.indexOf(b.risk.level) - LEVELS.indexOf(a.risk.level));
  return h("section", { class: "card", id: "coming", "aria-label": "About to go wrong" },
    h("h2", {}, "About to go wrong", h("span", { class: "sub" }, found.length ? `${found.length} of ${
      servers.length + devices.length}` : "")),
    found.length ? h("ul", { class: "coming" }, found.map(entry))
      : h("p", { class: "note" }, "Nothing: no server and no GPU has a risk that is known."));
}

function entry(one) {
  const { reason, numbers } = one.risk;
  return h("li", { "data-key": one.is, "data-coming": one.is },
    h("b", {}, one.name), " ", riskTag(one),
    one.left !== null && h("span", { class: "left" }, one.left > 0 ? `full in ${duration(one.left)}` : "full"),
    h("small", {}, Object.entries(numbers).map(([name, value]) => figure(name, value)).join(", ")),
    PAGES[reason] && h("a", { class: "runbook", href: `${RUNBOOKS}/${PAGES[reason]}.md`, rel: "noreferrer" }, "what to do"));
}

/** A number by the unit at the end of its name. */
function figure(name, value) {
  const words = (unit) => name.replace(unit, "").replaceAll("_", " ");
  if (name.endsWith("_ratio")) return `${words(/_ratio$/)} ${percent(value)}`;
  if (name.endsWith("_seconds")) return `${words(/_seconds$/)} ${duration(value)}`;
  if (name === "bytes_per_hour") return `${gib(value)} GiB an hour`;
  if (name.endsWith("_bytes")) return `${words(/_bytes$/)} ${gib(value)} GiB`;
  return `${words("")} ${Number.isInteger(value) ? count(value) : value.toPrecision(2)}`;
}

/** What changed between two snapshots in levels of risk, in one sentence; empty where nothing did. */
export function changes(before, fresh) {
  const levels = ({ servers, devices }) => new Map([...servers.map((one) => [one.name, one.risk?.level ?? "ok"]),
    ...devices.map((one) => [gpuName(one.gpu), one.risk?.level ?? "ok"])]);
  const was = levels(before);
  return [...levels(fresh)].filter(([name, level]) => was.has(name) && was.get(name) !== level)
    .map(([name, level]) => `${name}: ${level.replace("_", " ")}`).join("; ");
}
