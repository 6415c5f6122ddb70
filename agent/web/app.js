// The node page: asks the agent for its snapshot once a second, draws it, and says so when it can't.

import { History } from "./chart.js";
import { deviceCard } from "./device.js";
import { h, morph } from "./dom.js";
import { duration, percent, UNKNOWN } from "./format.js";
import { serverCard } from "./server.js";

const SCHEMA = "vramscope.snapshot/1";
const UNREACHABLE = "Agent not reachable";
const POLL_MS = 1000;
const DEADLINE_MS = 4000;
const STALE_MS = 3500; // a few missed polls; also when a poll hangs
const FROZEN_MS = 5000; // the agent answers, always with the same snapshot

const NO_GPU = "The agent shows no GPU. Check that nvidia-smi works on this host; in a container, that the GPUs were "
  + "passed in. A GPU that appears is picked up without a restart.";
const NO_SERVER = "The agent watches no inference server. Name one by its url: under servers: in the settings file.";

const node = document.getElementById("node");
const banner = document.getElementById("banner");
const history = new History();
let drawnAt = null; // performance.now() of the last answer that was drawn
let changedAt = null; // of the last one that brought a new snapshot
let snapshotTime = null; // the agent's own clock
let fault = null;

/** What the agent did not answer as it should. */
class AgentFault extends Error {}

async function poll() {
  try {
    if (drawnAt === null || performance.now() - drawnAt > STALE_MS) history.load(await get("api/v1/history"));
    const fresh = await get("api/v1/snapshot");
    if (fresh.schema !== SCHEMA) throw new AgentFault("Page and agent are of different versions: reload this page");
    history.extend(fresh);
    draw(fresh);
    drawnAt = performance.now();
    if (fresh.time !== snapshotTime) changedAt = drawnAt;
    snapshotTime = fresh.time;
    fault = null;
  } catch (error) {
    fault = error instanceof AgentFault ? error.message : `This page can't draw the figures (${error.message})`;
    if (!(error instanceof AgentFault)) console.error(error);
  }
  showFreshness();
}

async function get(path) {
  let response;
  let text;
  try {
    response = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(DEADLINE_MS) });
    text = await response.text();
  } catch {
    throw new AgentFault(UNREACHABLE);
  }
  if (response.ok) return JSON.parse(text);
  throw new AgentFault(`The agent answered ${response.status}: ${text.slice(0, 300).trim()}`);
}

function draw(fresh) {
  const faultsOf = (target) => fresh.collectors
    .filter((one) => one.error && target !== "" && one.target === target).map((one) => one.error);
  morph(node, h("main", { id: "node" },
    h("div", { class: "columns" },
      h("div", { class: "column", id: "devices" }, fresh.devices.length
        ? fresh.devices.map((device) => deviceCard(device, faultsOf(device.uuid), fresh.devices.length > 2))
        : missing("No GPU", NO_GPU, fresh, ["nvml"])),
      h("div", { class: "column", id: "servers" }, fresh.servers.length
        ? fresh.servers.map((server) => serverCard(server, faultsOf(server.name), history))
        : missing("No inference server", NO_SERVER, fresh, ["endpoint", "processes"]))),
    collectors(fresh)));
  morph(document.getElementById("version"), h("span", { id: "version" }, `vramscope ${fresh.version}`));
  morph(document.getElementById("status"), h("p", { id: "status" }, summary(fresh)));
}

function summary(fresh) {
  const driver = fresh.devices.find((device) => device.driver)?.driver;
  const ratios = fresh.devices.map((device) => device.headroom_ratio).filter((ratio) => ratio !== null);
  const failing = fresh.collectors.filter((one) => !one.success).length;
  document.title = `${ratios.length ? `${percent(Math.min(...ratios))} headroom · ` : ""}vramscope ${location.host}`;
  return [
    h("span", {}, location.host),
    driver && h("span", {}, `driver ${driver}`),
    h("span", { class: failing ? "bad" : "" }, failing
      ? `${failing} of ${fresh.collectors.length} collectors failing` : "all collectors ok"),
  ];
}

function missing(title, advice, fresh, names) {
  const errors = fresh.collectors.filter((one) => one.error && names.includes(one.name));
  return h("article", { class: "card", "data-missing": title },
    h("h2", {}, title), errors.map((one) => h("p", { class: "call" }, one.error)), h("p", { class: "note" }, advice));
}

function collectors(fresh) {
  const heads = ["collector", "target", "last answer", "age"];
  return h("section", { class: "card" }, h("h2", {}, "Collectors"),
    h("table", { class: "collectors" },
      h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", {}, fresh.collectors.flatMap((one) => [
        h("tr", { "data-collector": one.name, "data-success": String(one.success) },
          h("td", {}, one.name), h("td", {}, one.target),
          h("td", { class: one.success ? "" : "bad" }, one.success ? "ok" : "failed"),
          h("td", {}, one.age_seconds === null ? UNKNOWN : duration(one.age_seconds))),
        one.error && h("tr", { class: "error" }, h("td", { colspan: heads.length }, one.error)),
      ]))));
}

/** An old value never passes for a fresh one: the banner says how old, and the figures are greyed. */
function showFreshness() {
  const now = performance.now();
  const silent = fault !== null || (drawnAt !== null && now - drawnAt > STALE_MS);
  const frozen = !silent && changedAt !== null && now - changedAt > FROZEN_MS;
  banner.hidden = !silent && !frozen;
  node.toggleAttribute("data-stale", silent || frozen);
  if (banner.hidden) return;
  const since = frozen ? changedAt : drawnAt;
  const [what, when] = banner.children;
  setText(what, frozen ? "The agent answers, but its figures stand still" : fault ?? UNREACHABLE);
  setText(when, since === null ? ", no figures yet."
    : `, last update ${duration((now - since) / 1000)} ago. The figures below are old.`);
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

async function run() {
  for (;;) {
    const start = performance.now();
    await poll();
    await new Promise((wake) => { setTimeout(wake, Math.max(100, POLL_MS - (performance.now() - start))); });
  }
}

setInterval(showFreshness, POLL_MS);
run();
