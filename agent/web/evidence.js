// How each figure is known, in sentences: its source, its age, and for a budget its bounds and what it rests on.

import { bounds, label, meaning } from "./components.js";
import { difference, duration, gib, percent, signedGib } from "./format.js";

export const EVIDENCE = {
  measured: "measured: driver or allocator statistics",
  reported: "reported: the engine's own metrics or log",
  computed: "computed: reported counts or checkpoint bytes times the exact layout",
};

const BASIS = {
  weights: ["the checkpoint", ["tp", "pp", "dp", "dtype", "quantization", "weights_bytes"]],
  kv_pool: ["the engine's rule for the size of its pool", ["gpu_memory_utilization", "kv_cache_memory_bytes",
    "num_gpu_blocks", "block_size", "kv_cache_dtype", "max_model_len"]],
  runtime: ["published figures of context, graphs and libraries, and on the engine's largest step", ["tp", "pp",
    "max_num_batched_tokens", "max_num_seqs", "enforce_eager"]],
};

/** Lines of a note; those that are not known are left out. */
export const lines = (...all) => all.flat().filter((line) => line).join("\n");

export const of = (server) => (server ? ` in ${server}` : "");

/** A source with the age of its reading. */
export function known(kind, ageSeconds) {
  return `${EVIDENCE[kind]}${ageSeconds === null ? "" : `; ${duration(ageSeconds)} ago`}.`;
}

/** What is known of one component of a device; `server` is the record of its server, where there is one. */
export function partTip(device, part, server) {
  const range = bounds(device, part.server, part.component);
  return lines(
    `${label(part.component)}${of(part.server)}: ${gib(part.bytes)} GiB, ${percent(part.bytes / device.total_bytes)}`,
    `${meaning(part.component)}.`,
    `Live is ${known(part.evidence, part.age_seconds)}`,
    part.source && `From ${part.source}.`,
    budgetLines(part.component, range, part.bytes, server));
}

export function poolTip(device, bytes, name, server) {
  return lines(`${label("kv_pool")}${of(name)}: ${gib(bytes)} GiB`, `${meaning("kv_pool")}: the sum of its parts.`,
    budgetLines("kv_pool", bounds(device, name, "kv_pool"), bytes, server));
}

/** What the budget of one component rests on; `name` is that of the server, `server` its record. */
export function budgetTip(device, component, name, server) {
  return lines(`Budget of ${label(component)}${of(name)}`,
    budgetLines(component, bounds(device, name, component), null, server));
}

function budgetLines(component, { low, likely, high }, bytes, server) {
  if (likely === null) return server && component in BASIS && noBudget(server);
  const deviation = deviates(server) ? difference(bytes, likely) : null;
  return [
    low === null || high === null ? `Budget, likely: ${gib(likely)} GiB.`
      : `Budget, likely: ${gib(likely)} GiB; low ${gib(low)}, high ${gib(high)} GiB.`,
    deviation !== null && `Deviation, live minus budget: ${signedGib(deviation)} GiB.`,
    server && restsOn(component, server),
  ];
}

/** Whether what a server holds is to be as budgeted: while it loads or sleeps, other things are in its parts. */
export const deviates = (server) => server?.state === "serving";

function noBudget(server) {
  return `It has no budget${server.model_path ? "" : ", since its model is not known"}.`;
}

function restsOn(component, server) {
  const [what, names] = BASIS[component] ?? ["its model and arguments", []];
  const given = names.filter((name) => name in server.arguments).map((name) => `${name} ${server.arguments[name]}`);
  const where = component === "weights" && server.model_path ? ` in ${server.model_path}` : "";
  return `The budget rests on ${what}${where}${given.length ? `, with ${given.join(", ")}` : ""}, and on the defaults `
    + `of ${[server.engine, server.version].join(" ").trim()} where an argument is not known.`;
}
