// The view of one server: what is about to go wrong with it, its pools side by side with their forecasts, its chains, its
// GPUs, and what runs.

import { chart } from "./chart.js";
import { coming } from "./coming.js";
import { h } from "./dom.js";
import { count, percent } from "./format.js";
import { overview } from "./overview.js";
import { byFullness, nameOf, pastPools, poolHead, poolMap } from "./pools.js";
import { isAway } from "./seen.js";
import { serverBody, stale, tag } from "./server.js";
import { riskTags } from "./outlook.js";

/** The view; a server that is not there any more is said to be gone. */
export function serverView(name, view) {
  const server = view.servers.get(name);
  return h("div", { id: "view", "data-key": `server ${name}`, "data-server-view": name },
    h("nav", { class: "back", "aria-label": "Views" }, h("a", { href: "#" }, "← all GPUs and servers")),
    server ? known(server, view) : gone(name));
}

function gone(name) {
  return h("section", { class: "card" }, h("h2", { tabindex: -1 }, name),
    h("p", { class: "note" }, "No server of this name is known now. It may have ended, or been given another name."));
}

function known(server, view) {
  const names = new Set([...server.devices, ...view.seen.before(server).devices]);
  const own = view.devices.filter((device) => names.has(device.uuid)
    || device.components.some((part) => part.server === server.name));
  const isLost = !own.length && isAway(server);
  const devices = isLost ? view.devices : own;
  const past = pastPools(server, view);
  return [
    h("h2", { tabindex: -1 }, server.name, tag(server), riskTags(server)),
    coming([server], devices, { links: false, seen: view.seen }),
    past && h("section", { class: "card", "aria-label": "KV pools" }, past),
    server.pools.length > 0 && h("section", { class: "card", "aria-label": "KV pools" },
      h("h2", {}, server.pools.length > 1 ? `${server.pools.length} KV pools` : "KV pool",
        h("span", { class: "sub" }, "tokens by what holds them")),
      poolMap(server),
      h("div", { class: "charts" }, byFullness(server.pools).map((pool) => h("div", {
        "data-key": `${pool.replica} ${pool.kind}`, "data-pool-chart": pool.replica,
      }, server.pools.length > 1 && poolHead(server, pool), chart(server.name, pool, view))))),
    h("section", { class: "card runs", "aria-label": "What runs", "data-server-card": server.name,
      "data-stale": stale(server) }, serverBody(server, view)),
    h("div", { class: "column" },
      chains(server),
      isLost && h("p", { class: "note" }, "On which GPUs it was is not known here: these are all of them."),
      devices.length > 0 && overview(devices, view)),
  ];
}

function chains(server) {
  const pools = server.pools.filter((pool) => pool.forecast?.chains);
  if (!pools.length) return null;
  const heads = ["pool", "running", "mean tokens", "grows tokens/s", "longest", "the few longest"];
  return h("section", { class: "card", "aria-label": "Running sequences" }, h("h2", {}, "Running sequences"),
    h("table", { class: "figures chains" },
      h("thead", {}, h("tr", {}, heads.map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, pools.map((pool) => row(server, pool)))));
}

function row(server, pool) {
  const { chains: one } = pool.forecast;
  const requests = server.replicas.find(({ replica }) => replica === pool.replica)?.requests;
  return h("tr", { "data-key": `${pool.replica} ${pool.kind}`, "data-chains": pool.replica },
    h("th", { scope: "row" }, nameOf(server, pool)),
    h("td", {}, count(requests?.running)), h("td", {}, count(one.mean_tokens)),
    h("td", {}, one.growth_tokens_per_second.toFixed(1)), h("td", {}, count(one.longest_tokens)),
    h("td", {}, one.few !== null && one.few_ratio !== null
      ? `${count(one.few)} hold ${percent(one.few_ratio)}` : count(null)));
}
