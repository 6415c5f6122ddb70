// One inference server: what runs, its state, its requests and KV pools, and how it was found and started.

import { beside } from "./beside.js";
import { WAITS } from "./collectors.js";
import { h } from "./dom.js";
import { known, lines } from "./evidence.js";
import { count, duration, gib, gpuName, UNKNOWN } from "./format.js";
import { fragmentation } from "./inside.js";
import { notes, prose } from "./notes.js";
import { origin } from "./origin.js";
import { risky, riskTags } from "./outlook.js";
import { pools, thinPools } from "./pools.js";
import { addressOf, serverLink } from "./route.js";
import { why } from "./tip.js";
import { upgrade } from "./upgrade.js";

const STALE_SECONDS = 5;
const STATES = ["down", "loading", "sleeping", "serving"]; // the gravest first
const COUNTS = {
  running: "Requests that are being computed", waiting: "Requests that wait for their turn",
  preemptions: "Requests that lost their KV cache to others and began anew, since the engine's start",
  refusals: "Requests seen to fail for want of KV",
};

export function gravest(servers) {
  return [...servers].sort((a, b) => STATES.indexOf(a.state) - STATES.indexOf(b.state));
}

export function serverCard(server, view) {
  return h("article", {
    class: "card", "data-key": server.name, "data-server-card": server.name, "data-stale": stale(server),
  },
    h("h2", {}, serverLink(server.name), tag(server), riskTags(server)),
    serverBody(server, view, pools(server, view)));
}

export function serverRow(server, view) {
  const { running, waiting } = server.requests;
  return h("a", {
    class: "server", href: addressOf(server.name), "data-key": server.name, "data-server-card": server.name,
    "data-stale": stale(server),
  },
    h("span", { class: "name" }, server.name), tag(server),
    h("small", { class: "requests" }, running === null ? "" : `${count(running)} running, ${count(waiting)} waiting`),
    thinPools(server),
    risky(server),
    wrong(server, view).map((text) => h("span", { class: "wrong" }, prose(text))));
}

/** What is known of a server; `kv` is what it shows of its pools. */
export function serverBody(server, view, kv = null) {
  const gpus = [...new Set(server.ranks.map((rank) => rank.gpu))];
  const before = view.seen.before(server);
  return [
    h("dl", { class: "facts" },
      fact("model", lastKnown(server.model, before.model) ?? UNKNOWN),
      fact("engine", [server.engine, " ", lastKnown(server.version, before.version)]),
      fact("url", server.url || UNKNOWN),
      gpus.length > 0 && fact("on", gpus.map(gpuName).join(", ")),
      server.restarts > 0 && fact("restarts", count(server.restarts))),
    stateNote(server, view),
    wrong(server, view).map((text) => h("p", { class: "call" }, prose(text))),
    ["serving", "sleeping"].includes(server.state) && load(server),
    kv,
    fragmentation(server),
    beside(server),
    upgrade(server),
    notes(server.notes),
    origin(server),
  ];
}

export function tag(server) {
  return h("span", { class: "tag", "data-state": server.state }, server.state);
}

/** An attribute that greys what is old, null where it is not. */
export function stale(server) {
  return server.state !== "down" && server.age_seconds !== null && server.age_seconds > STALE_SECONDS ? "" : null;
}

function wrong(server, view) {
  return [
    stale(server) !== null && `This reading is ${duration(server.age_seconds)} old.`,
    ...view.faultsOf(server.name),
    server.budget_fits === false && "The budget says that this does not fit its device.",
  ].filter((text) => text);
}

/** What a state means for the memory that is shown. */
function stateNote(server, view) {
  const held = view.devices.flatMap((device) => device.components).filter((part) => part.server === server.name)
    .reduce((total, part) => total + part.bytes, 0);
  const text = {
    loading: "It loads its model, or hangs. Until it answers, all that its processes hold is shown as its runtime: "
      + `${gib(held)} GiB.`,
    sleeping: `It sleeps and has given memory back: ${gib(held)} GiB are still held by its processes.`,
    down: "Nothing answers, and no process of it is known: no memory is shown as its own.",
  }[server.state];
  return text && h("p", { class: "note" }, view.waits.has(server.name) && [prose(WAITS), ". "], text);
}

const lastKnown = (now, before) => now ?? (before && h("span", { class: "was" }, before, " before it went down"));

function fact(name, value) {
  return h("div", {}, h("dt", {}, name), h("dd", { "data-fact": name }, value));
}

function load(server) {
  const figure = (name, value) => h("div", {}, h("dd", { "data-load": name }, why(count(value), {
    kind: value !== null && "reported", label: `${count(value)} ${name}`,
    text: lines(`${COUNTS[name]}.`, server.replicas.length > 1 && "The sum of its replicas.",
      value === null ? "The engine does not tell." : `It is ${known("reported", server.age_seconds)}`),
  })), h("dt", {}, name));
  return h("dl", { class: "load" },
    figure("running", server.requests.running),
    figure("waiting", server.requests.waiting),
    figure("preemptions", server.counters.preemptions),
    server.counters.refusals !== null && figure("refusals", server.counters.refusals));
}
