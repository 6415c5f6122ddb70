// What is coming: the time a pool or a device has left, the level of risk and its reason. What is not known is not said.

import { h } from "./dom.js";
import { lines } from "./evidence.js";
import { count, duration, gib, percent, signedGib } from "./format.js";
import { prose } from "./notes.js";
import { why } from "./tip.js";

const REASONS = {
  pool_exhaustion: "a KV pool runs full", preemption_storm: "requests are preempted again and again",
  no_transient_room: "no room for the largest temporaries", low_headroom: "little headroom",
  device_creep: "its memory creeps up", budget_mismatch: "not as budgeted",
  foreign_process: "a process of no server", hidden_memory: "memory that nobody is seen to hold",
  fragmentation: "fragmented", sleep_residue: "holds much in its sleep", restart_loop: "restarts again and again",
  host_memory: "the host is short of memory", hardware: "hardware", blind: "it is not read",
};
const PAST = { runs: "was running", are: "were", creeps: "crept", is: "was", holds: "held", restarts: "restarted" };
const OUTCOMES = {
  preempt: "a running request loses its KV and is computed again", retract: "running requests are computed again",
  pause: "the newest requests are paused", queue: "new requests wait", refuse: "all running requests fail",
  truncate: "a request loses the beginning of its context",
};
const FULL_RATIO = 0.9; // a pool that ran out lately and is used less has room again
const OWNERS = { other_processes: "processes of no server", hidden: "no visible process", host: "the host" };

/** The level of risk and its reason as a tag, and small ones of the other reasons; nothing while all is well. */
export function riskTags(one) {
  const { risk } = one;
  if (!risk || risk.level === "ok") return null;
  return [riskTag("tag", risk.reason, risk.level, one),
    Object.entries(risk.also).map(([reason, level]) => riskTag("tag also", reason, level, one))];
}

/** How long ago something asked last for the level that a reason is held at; null where it is not held. */
export function heldFor(risk, reason) {
  return (risk?.reason === reason ? risk.held_seconds : risk?.also_held_seconds[reason]) ?? null;
}

export function risky(one) {
  const tags = riskTags(one);
  return tags && h("span", { class: "risks" }, tags);
}

function riskTag(kind, reason, level, { risk, pools = [] }) {
  const held = heldFor(risk, reason);
  const full = pools.filter(({ forecast }) => forecast?.exhausted);
  const words = reason === "pool_exhaustion" && full.length && full.every(hasRoom) ? "a KV pool ran full" : REASONS[reason];
  return h("span", { class: kind, "data-risk": level, "data-reason": reason, "data-held": held === null ? null : "" },
    `${level.replace("_", " ")}${held === null ? `: ${words}`
      : `, held: ${words.replace(/\w+/g, (word) => PAST[word] ?? word)} ${duration(held)} ago`}`);
}

/** Seconds until the first of a server's pools is full, 0 where one is; null where that is not foreseen. */
export const poolSoonest = ({ pools }) => soonest(pools.map(({ forecast }) => forecast));

export const deviceSoonest = ({ forecast }) => soonest([forecast]);

function soonest(forecasts) {
  const known = forecasts.map((one) => (one?.exhausted ? 0 : one?.exhaustion_seconds.likely ?? null));
  return known.filter((seconds) => seconds !== null).sort((a, b) => a - b)[0] ?? null;
}

/** Whether a pool is known to have room now, whatever its forecast says. */
export const hasRoom = ({ used_ratio: used }) => used !== null && used < FULL_RATIO;

/** What is said of a pool that ran out within the last two minutes. */
export const fullText = (pool) => (hasRoom(pool)
  ? `ran out within the last 2 min, now ${percent(pool.used_ratio)}` : "full");

/** How long until a pool is full, beside its growth; nothing where that is not foreseen. */
export function poolLeft(pool) {
  const { forecast, growth_tokens_per_second: growth } = pool;
  if (!forecast) return null;
  const { likely, early } = forecast.exhaustion_seconds;
  if (likely === null) return null;
  const then = OUTCOMES[forecast.outcome] ?? "";
  const { chains } = forecast;
  const text = lines(
    forecast.exhausted ? `${hasRoom(pool) ? "It ran out" : "Full"}: ${then}.`
      : `Full in ${duration(likely)} at the present course, then ${then}.`,
    early !== null && early < likely && `At the soonest in ${duration(early)}.`,
    forecast.probability_5min !== null
      && `Chance that it is full within 5 minutes: ${percent(forecast.probability_5min)}, within 2: ${
        percent(forecast.probability_2min)}.`,
    chains && `A running request holds ${count(chains.mean_tokens)} tokens in the mean.`,
    chains?.long_ratio >= 0.5 && `At least ${percent(chains.long_ratio)} of what running requests have added is in ones `
      + `longer than ${count(chains.short_tokens)} tokens, as nine in ten that ended were not.`,
    chains?.few && `${count(chains.few)} of them hold ${percent(chains.few_ratio)} of the pool's use.`,
    forecast.queue_at_limit && "Requests wait for the limit of running ones, not for room.");
  const shown = forecast.exhausted ? fullText(pool) : `full in ${duration(likely)}`;
  return h("span", { class: "left", "data-left": likely, "data-level": forecast.level,
    "data-past": forecast.exhausted && hasRoom(pool) && "" }, why(shown, { kind: "computed", text }),
    !forecast.exhausted && !(growth > 0) && h("small", {}, " by its course so far"));
}

/** What grows on a device and how long until it is full; nothing where nothing is known to grow. */
export function deviceLeft({ forecast }) {
  if (!forecast) return null;
  const { likely, early } = forecast.exhaustion_seconds;
  const soonest = early !== null && early < likely ? `, ${duration(early)} at the soonest` : "";
  return h("p", { class: likely === null ? "foot" : "call", "data-left": likely ?? "" },
    likely !== null && h("b", {}, `Full in ${duration(likely)}${soonest}`),
    prose(likely === null ? `It grows: ${forecast.cause}.` : ` ${forecast.cause}. Room left: ${
      gib(forecast.room_bytes)} GiB beside ${gib(forecast.reserve_bytes)} GiB for temporaries.`));
}

/** The newest change of memory that stayed, and how many there were. */
export function lastStep({ steps }) {
  if (!steps.length) return null;
  const { owner, bytes, age_seconds: age } = steps[steps.length - 1];
  return h("p", { class: "foot", "data-steps": steps.length }, prose(
    `Last step outside the KV pools: ${signedGib(bytes)} GiB, ${OWNERS[owner] ?? owner}, ${duration(age)} ago${
      steps.length > 1 ? `; ${count(steps.length)} in all` : ""}.`));
}
