// The KV pools of one server: one in full, several as a list with the fullest first.

import { chart } from "./chart.js";
import { h } from "./dom.js";
import { known, lines } from "./evidence.js";
import { fold } from "./folds.js";
import { count, gib, percent, rate, width } from "./format.js";
import { poolLeft } from "./outlook.js";
import { why } from "./tip.js";

const STATES = ["used", "reserved", "cached", "free", "available"];
const STEPS = 20; // pools within 5 % of each other keep their places, so that the list stands still

export function pools(server, view) {
  if (!server.pools.length) return pastPools(server, view);
  if (server.pools.length === 1) return single(server, server.pools[0], view);
  return h("section", { class: "kv" },
    h("h3", {}, `${server.pools.length} KV pools`, h("small", {}, "the fullest first")),
    h("div", { class: "list" }, byFullness(server.pools).map((pool) => row(server, pool, view))));
}

/** What the pools of one that is down, or loads, held before, as far as the page has drawn it. */
export function pastPools(server, view) {
  const before = view.seen.before(server);
  if (server.pools.length) return null;
  const charts = before.pools.map((pool) => [nameOf(before, pool), chart(server.name, { ...pool, forecast: null }, view)])
    .filter(([, drawn]) => drawn);
  if (!charts.length) return null;
  const many = charts.length > 1 && `${charts.length} KV pools before it went down`;
  return h("section", { class: "kv was" }, many ? fold(`was ${server.name}`, many, () => charts)
    : [h("h3", {}, charts[0][0], h("small", {}, "before it went down")), charts[0][1]]);
}

function single(server, pool, view) {
  return h("section", { class: "kv", ...data(pool) },
    poolHead(server, pool), poolBar(pool), tokens(pool), chart(server.name, pool, view));
}

/** The heading of one pool: how full, how it grows, how long it lasts. */
export function poolHead(server, pool) {
  return h("h3", {}, nameOf(server, pool), ratio(server, pool), h("small", {}, "used"),
    h("span", { class: "growth" }, growth(pool)), poolLeft(pool));
}

/** All pools of a server on one scale, each with its tokens by what holds them. */
export function poolMap(server) {
  const most = Math.max(...server.pools.map((pool) => pool.capacity_tokens ?? 0));
  return h("ul", { class: "poolmap" }, server.pools.map((pool) => h("li", {
    "data-key": `${pool.replica} ${pool.kind}`, ...data(pool),
  },
    h("span", { class: "name" }, nameOf(server, pool)), poolBar(pool, most),
    ratio(server, pool), h("p", { class: "tokens" }, h("span", { class: "key" }, growth(pool)), poolLeft(pool)),
    tokens(pool))));
}

function row(server, pool, view) {
  const summary = [
    h("span", { class: "name" }, nameOf(server, pool)), poolBar(pool), h("b", {}, percent(pool.used_ratio)),
    h("small", { class: "growth" }, growth(pool)),
  ];
  const body = () => [
    h("p", { class: "tokens" }, ratio(server, pool), " used, ", load(server, pool), " ", poolLeft(pool)),
    tokens(pool), chart(server.name, pool, view),
  ];
  return fold(`pool ${JSON.stringify([server.name, pool.replica, pool.kind])}`, summary, body,
    { class: "pool", ...data(pool) });
}

/** All pools of a server as thin lines on one scale, the fullest first, with the ratio of that one. */
export function thinPools(server) {
  if (!server.pools.length) return null;
  const sorted = byFullness(server.pools);
  const used = (pool) => h("span", { class: "part", "data-component": "kv_used", width: width(pool.used_ratio, 1) });
  return [
    h("span", { class: "pools" }, sorted.map((pool) => h("span", { class: "bar", "data-row": "thin", ...data(pool) },
      pool.used_ratio !== null && used(pool)))),
    h("span", { class: "fullest" }, h("b", {}, percent(sorted[0].used_ratio)),
      h("small", {}, sorted.length > 1 ? ` KV, fullest of ${sorted.length}` : " KV used")),
  ];
}

export function byFullness(all) {
  const step = (pool) => Math.floor((pool.used_ratio ?? -1) * STEPS);
  return [...all].sort((a, b) => step(b) - step(a));
}

function data(pool) {
  return { "data-pool": pool.kind, "data-replica": pool.replica, "data-ratio": pool.used_ratio };
}

export function nameOf(server, pool) {
  const several = (field) => new Set(server.pools.map((other) => other[field])).size > 1;
  return [
    server.pools.length === 1 && "KV pool", several("replica") && `replica ${pool.replica}`,
    (several("kind") || pool.kind !== "full") && pool.kind,
  ].filter((word) => word).join(" ");
}

function ratio(server, pool) {
  const unfilled = server.fragmentation.find((one) => one.kind === "kv_block" && one.replica === pool.replica);
  const text = lines(
    `KV used: ${percent(pool.used_ratio)} of ${count(pool.capacity_tokens)} tokens`,
    `Held by live requests. It is ${known("reported", server.age_seconds)}`,
    pool.pool_bytes !== null && `The pool takes ${gib(pool.pool_bytes)} GiB of each GPU, computed from its blocks.`,
    unfilled && `Of the slots in use ${percent(unfilled.low)} to ${percent(unfilled.high)} hold no token, computed.`,
    pool.growth_tokens_per_second !== null && "Growth is computed: the median slope of up to three minutes.");
  return why(h("b", {}, percent(pool.used_ratio)), { kind: "reported", text,
    label: `${percent(pool.used_ratio)} used of ${nameOf(server, pool)}` });
}

function growth(pool) {
  const { growth_tokens_per_second: perSecond } = pool;
  return perSecond === null ? "growth not known yet" : `${rate(perSecond)} tokens/s`;
}

function load(server, pool) {
  const requests = server.replicas.find((one) => one.replica === pool.replica)?.requests;
  return `${count(requests?.running)} running, ${count(requests?.waiting)} waiting`;
}

function tokens(pool) {
  return h("p", { class: "tokens" }, statesOf(pool).map((state) => h("span", { class: "key" },
    h("i", { class: "swatch", "data-component": `kv_${state}` }), `${state} ${count(tokensOf(pool, state))}`)),
  h("span", { class: "key" }, `of ${count(pool.capacity_tokens)} tokens`));
}

/** Tokens by state against the capacity; where the engine gives only a ratio, that. `most`: the capacity of a whole bar. */
function poolBar(pool, most = null) {
  const capacity = pool.capacity_tokens;
  const states = statesOf(pool);
  const part = (state, share) => h("div", {
    class: "part", "data-component": `kv_${state}`, width: width(share, 1),
  });
  const parts = capacity && states.length
    ? states.map((state) => part(state, tokensOf(pool, state) / capacity))
    : pool.used_ratio !== null && part("used", pool.used_ratio);
  const description = `${percent(pool.used_ratio)} used`;
  return h("div", { class: "bar", "data-row": "pool", role: "img", "aria-label": description,
    width: most && capacity && width(capacity, most) }, parts);
}

function statesOf(pool) {
  return STATES.filter((state) => tokensOf(pool, state) !== null);
}

function tokensOf(pool, state) {
  return pool[`${state}_tokens`];
}
