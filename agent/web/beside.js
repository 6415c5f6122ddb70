// What a server has beside its pools: KV off its GPUs, adapters, a cache of images. No bar of a GPU holds any of it.

import { h } from "./dom.js";
import { count, gib, percent, sum } from "./format.js";

const TIERS = { host: "in host memory", disk: "on disk", remote: "in a remote store" };

/** Facts of a server that are in no component, each where the engine tells it. */
export function beside(server) {
  const rows = [...server.offload.map((one) => off(server, one)), ...server.adapters.map(adapters), images(server)]
    .filter((row) => row);
  if (!rows.length) return null;
  return h("dl", { class: "facts", "data-beside": "" },
    rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

function off(server, one) {
  const several = server.replicas.length > 1 && one.replica !== null;
  const unit = one.kind === "state" ? "states" : "tokens";
  const amounts = [
    amount(one.used_bytes, one.capacity_bytes, (bytes) => `${gib(bytes)} GiB`),
    amount(one.used_tokens, one.capacity_tokens, (tokens) => `${count(tokens)} ${unit}`),
    amount(one.used_blocks, one.capacity_blocks, (blocks) => `${count(blocks)} blocks`),
    one.used_ratio !== null && `${percent(one.used_ratio)} used`,
  ].filter((text) => text);
  return [
    `KV ${TIERS[one.tier]}${several ? `, replica ${one.replica}` : ""}`,
    [one.by, ...amounts].join(", "),
  ];
}

function amount(used, capacity, text) {
  if (used === null) return capacity !== null && `room for ${text(capacity)}`;
  return capacity === null ? text(used) : `${text(used)} of ${text(capacity)}`;
}

function adapters(one) {
  const names = (what, list) => list !== null && list.length > 0 && `${what} ${list.join(", ")}`;
  const slots = one.used_slots === null ? one.slots !== null && `${count(one.slots)} at once`
    : `${count(one.used_slots)} of ${count(one.slots)} slots in use`;
  return ["LoRA adapters", [slots, names("running", one.running), names("waiting", one.waiting)]
    .filter((text) => text).join("; ")];
}

function images(server) {
  const known = server.replicas.filter((one) => one.multimodal_queries);
  if (!known.length) return null;
  const total = (field) => count(sum(known.map((one) => one[field] ?? 0)));
  return ["multimodal cache in host memory",
    `${total("multimodal_hits")} of ${total("multimodal_queries")} items found`];
}
