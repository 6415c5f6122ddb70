// One inference server: what runs, its requests, and each of its KV pools now and over the last minutes.

import { chart } from "./chart.js";
import { h } from "./dom.js";
import { count, duration, percent, rate, UNKNOWN, width } from "./format.js";

const STALE_SECONDS = 5;
const POOL_STATES = ["used", "cached", "free", "available"];
const STATES = {
  loading: "loading the model", serving: "serving", sleeping: "sleeping: memory given back", down: "not answering",
};

/** The card of one server. `faults` are the sentences of collectors that failed on it. */
export function serverCard(server, faults, history) {
  const stale = server.state !== "down" && server.age_seconds !== null && server.age_seconds > STALE_SECONDS;
  return h("article", { class: "card", "data-server-card": server.name, "data-stale": stale && "" },
    h("h2", {}, server.name, h("span", { class: "tag", "data-state": server.state, title: STATES[server.state] },
      server.state)),
    h("dl", { class: "facts" },
      fact("model", server.model ?? UNKNOWN),
      fact("engine", `${server.engine} ${server.version ?? ""}`),
      fact("url", server.url),
      server.restarts > 0 && fact("restarts", count(server.restarts))),
    stale && h("p", { class: "call" }, `This reading is ${duration(server.age_seconds)} old.`),
    faults.map((fault) => h("p", { class: "call" }, fault)),
    server.budget_fits === false && h("p", { class: "call" }, "The budget says that this does not fit its device."),
    server.state === "down" ? null : load(server),
    server.pools.map((pool) => poolView(server, pool, history.of(server.name, pool))),
    server.notes.map((note) => h("p", { class: "foot" }, note)),
  );
}

function fact(name, value) {
  return h("div", {}, h("dt", {}, name), h("dd", { "data-fact": name }, value));
}

function load(server) {
  const figure = (name, value) => h("div", {}, h("dd", { "data-load": name }, count(value)), h("dt", {}, name));
  return h("dl", { class: "load" },
    figure("running", server.requests.running),
    figure("waiting", server.requests.waiting),
    figure("preemptions", server.counters.preemptions));
}

function poolView(server, pool, points) {
  const tokens = statesOf(pool).map((state) => h("span", { class: "key" },
    h("i", { class: "swatch", "data-component": `kv_${state}` }), `${state} ${count(tokensOf(pool, state))}`));
  return h("section", {
    class: "kv", "data-pool": pool.kind, "data-replica": pool.replica, "data-ratio": pool.used_ratio,
  },
    h("h3", {}, poolName(server, pool), h("b", {}, percent(pool.used_ratio)), h("small", {}, " used"),
      h("span", { class: "growth" }, growth(pool.growth_tokens_per_second))),
    poolBar(pool),
    h("p", { class: "tokens" }, tokens, h("span", { class: "key" }, `of ${count(pool.capacity_tokens)} tokens`)),
    chart(points, pool.capacity_tokens));
}

function poolName(server, pool) {
  const kinds = new Set(server.pools.map((other) => other.kind));
  const replicas = new Set(server.pools.map((other) => other.replica));
  const kind = kinds.size > 1 || pool.kind !== "full" ? ` ${pool.kind}` : "";
  return `KV pool${kind}${replicas.size > 1 ? ` of replica ${pool.replica}` : ""} `;
}

function growth(perSecond) {
  return perSecond === null ? "growth not known" : `${rate(perSecond)} tokens/s`;
}

/** Tokens by state against the capacity; where the engine gives only a ratio, that. */
function poolBar(pool) {
  const capacity = pool.capacity_tokens;
  const states = statesOf(pool);
  const part = (state, share) => h("div", {
    class: "part", "data-component": `kv_${state}`, width: width(share, 1), title: `${state} ${percent(share)}`,
  });
  const parts = capacity && states.length
    ? states.map((state) => part(state, tokensOf(pool, state) / capacity))
    : pool.used_ratio !== null && part("used", pool.used_ratio);
  const description = `${percent(pool.used_ratio)} used`;
  return h("div", { class: "bar", "data-row": "pool", role: "img", "aria-label": description }, parts);
}

function statesOf(pool) {
  return POOL_STATES.filter((state) => tokensOf(pool, state) !== null);
}

function tokensOf(pool, state) {
  return pool[`${state}_tokens`];
}
