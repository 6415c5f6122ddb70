// What is about to go wrong, or has: every server that is down, and all with a level of risk above ok, the gravest first,
// with the numbers that say so and the page that says what to do.

import { h } from "./dom.js";
import { count, duration, gib, gpuName, percent, plural } from "./format.js";
import { deviceSoonest, fullText, hasRoom, heldFor, poolSoonest, riskTags } from "./outlook.js";
import { nameOf } from "./pools.js";
import { serverLink } from "./route.js";
import { isAway } from "./seen.js";

const LEVELS = ["watch", "at_risk", "critical", "down"];
const RUNBOOKS = "https://github.com/vramscope/vramscope/blob/main/docs/runbooks";
const PAGES = {
  pool_exhaustion: "kv-pool-exhausting", preemption_storm: "preemption-storm", no_transient_room: "no-transient-room",
  low_headroom: "headroom-low", device_creep: "device-creep", budget_mismatch: "budget-deviation",
  foreign_process: "foreign-process", hidden_memory: "hidden-memory", fragmentation: "fragmentation-high",
  sleep_residue: "sleep-residue", restart_loop: "restarted-after-memory-signs", host_memory: "unified-memory-pressure",
  hardware: "device-memory-errors", blind: "server-blind",
};

const MOST_GPUS = 4; // more are counted
const SHOWN = { exhaustion_seconds: "as the time left" };
const CHANCES = {
  probability_2min: "chance that it is full within 2 min", probability_5min: "within 5 min",
};

/** The list of these servers and devices; `links` leads from a server to its view, `seen` is what the page has seen. */
export function coming(servers, devices, { links, seen }) {
  const found = risky(servers, devices);
  const away = servers.filter((one) => !isRisky(one) && (links ? isAway(one) : one.state !== "serving"));
  return h("section", { class: "card", id: "coming", "aria-label": "About to go wrong" },
    h("h2", {}, "About to go wrong", found.length > 0 && h("span", { class: "sub" },
      `${share(servers, "server")}, ${share(devices, "GPU")}`)),
    found.length > 0 && h("ul", { class: "coming" }, found.map((one) => entry(one, links, seen))),
    away.length + !found.length > 0 && h("p", { class: "note" },
      away.map((one) => `${one.name} is ${one.state}, ${seen.lasting(one)}. `), !found.length && well(servers, devices, away)));
}

/** What is down or has a level of risk above ok, the gravest first. */
export function risky(servers, devices) {
  const found = [
    ...servers.map((server) => ({ ...server, is: server.name, called: server.name, left: poolSoonest(server) })),
    ...devices.map((device) => ({ ...device, is: device.uuid, called: gpuName(device.gpu), left: deviceSoonest(device) })),
  ].filter(isRisky);
  return found.sort((a, b) => LEVELS.indexOf(levelOf(b)) - LEVELS.indexOf(levelOf(a)));
}

/** That nothing is about to go wrong, with what is nearest to it. */
function well(servers, devices, away) {
  const least = lowest(devices);
  const pools = servers.flatMap((server) => server.pools.map(({ used_ratio: ratio, forecast }) => ({
    name: server.name, ratio, left: poolSoonest({ pools: [{ forecast }] }), chance: forecast?.probability_5min ?? null,
  })));
  const [fullest] = pools.filter(({ ratio }) => ratio !== null).sort((a, b) => b.ratio - a.ratio);
  const [first] = pools.filter(({ left }) => left !== null).sort((a, b) => a.left - b.left);
  const near = [
    least && `the lowest headroom is ${percent(least.headroom_ratio)} on ${gpuName(least.gpu)}`,
    fullest && `the fullest KV pool is at ${percent(fullest.ratio)}, of ${fullest.name}`,
    first && `at its present course the KV pool of ${first.name} is full in ${duration(first.left)}${
      first.chance === null ? "" : `, with a chance of ${percent(first.chance)} within 5 min`}`,
  ].filter((text) => text);
  const none = away.length ? `No ${servers.length > away.length ? "other server and no " : ""}GPU` : "Nothing: no server and no GPU";
  return `${none} has a risk that is known${near.length ? `; ${near.join(", ")}` : ""}.`;
}

export function lowest(devices) {
  const known = devices.filter((device) => device.headroom_ratio !== null);
  return known.sort((a, b) => a.headroom_ratio - b.headroom_ratio)[0];
}

/** The level of risk; a server that is down is past all of them. */
export const levelOf = ({ state, risk }) => (state === "down" ? state : risk?.level ?? "ok");

const isRisky = (one) => LEVELS.includes(levelOf(one));

function share(all, noun) {
  return `${count(all.filter(isRisky).length)} of ${plural(all.length, noun)}`;
}

function entry(one, links, seen) {
  const page = one.risk?.reason ? PAGES[one.risk.reason] : "server-down";
  const isPast = heldFor(one.risk, one.pools ? "pool_exhaustion" : "device_creep") !== null && one.left > 0;
  return h("li", { "data-key": one.is, "data-coming": one.is },
    h("b", {}, links && one.pools ? serverLink(one.name) : one.called), " ",
    isAway(one) && h("span", { class: "tag", "data-state": one.state }, one.state), riskTags(one),
    one.left !== null && !isPast && h("span", ...left(one)),
    h("small", {}, [place(one), isAway(one) && since(one, seen), one.risk && because(one.risk)].filter((text) => text).join("; ")),
    page && h("a", { class: "runbook", href: `${RUNBOOKS}/${page}.md`, rel: "noreferrer" }, "what to do"));
}

/** How long until it is full; of pools that ran out the fullest speaks. */
function left({ left: seconds, pools = [] }) {
  if (seconds > 0) return [{ class: "left" }, `full in ${duration(seconds)}`];
  const [fullest] = pools.filter(({ forecast }) => forecast?.exhausted).sort((a, b) => b.used_ratio - a.used_ratio);
  return [{ class: "left", "data-past": fullest && hasRoom(fullest) && "" }, fullest ? fullText(fullest) : "full"];
}

const since = (one, seen) => (one.age_seconds === null ? seen.lasting(one) : `last answer ${duration(one.age_seconds)} ago`);

/** Where a server is: its GPUs, and of several pools those that are as grave as it is. */
function place(one) {
  if (!one.pools) return "";
  const gpus = [...new Set(one.ranks.map(({ gpu }) => gpu))];
  const on = gpus.length > MOST_GPUS ? plural(gpus.length, "GPU") : gpus.map(gpuName).join(", ");
  const pools = one.risk?.reason === "pool_exhaustion" && one.pools.length > 1
    ? one.pools.filter(({ forecast }) => forecast?.level === one.risk.level).map((pool) => nameOf(one, pool)) : [];
  return `${pools.join(", ")}${on && ` on ${on}`}`.trim();
}

/** The numbers behind a risk; of one that is held without chances, and of when they are. */
function because({ numbers, held_seconds: held, numbers_age_seconds: age }) {
  const figures = Object.entries(numbers).filter(([name]) => !(name in SHOWN || (held !== null && name in CHANCES)))
    .map(([name, value]) => figure(name, value)).join(", ");
  if (held === null || !figures) return figures;
  return `${age > held - 1 ? "then" : age > 0 ? `${duration(age)} ago` : "now"} ${figures}`;
}

function figure(name, value) {
  if (name in CHANCES) return `${CHANCES[name]} ${percent(value)}`;
  const words = (unit) => name.replace(unit, "").replaceAll("_", " ");
  if (name.endsWith("_ratio")) return `${words(/_ratio$/)} ${percent(value)}`;
  if (name.endsWith("_seconds")) return `${words(/_seconds$/)} ${duration(value)}`;
  if (name === "bytes_per_hour") return `${gib(value)} GiB an hour`;
  if (name.endsWith("_bytes")) return `${words(/_bytes$/)} ${gib(value)} GiB`;
  return `${words("")} ${Number.isInteger(value) ? count(value) : value.toPrecision(2)}`;
}

/** What changed between two snapshots in levels of risk, in one sentence; empty where nothing did. */
export function changes(before, fresh) {
  const levels = ({ servers, devices }) => new Map([...servers.map((one) => [one.name, levelOf(one)]),
    ...devices.map((one) => [gpuName(one.gpu), levelOf(one)])]);
  const was = levels(before);
  return [...levels(fresh)].filter(([name, level]) => was.has(name) && was.get(name) !== level)
    .map(([name, level]) => `${name}: ${level.replace("_", " ")}`).join("; ");
}
