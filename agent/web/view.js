// The whole page of one snapshot. A few GPUs or servers are cards; many are lists whose rows open to the same cards.

import { collectors } from "./collectors.js";
import { coming, levelOf, lowest, risky } from "./coming.js";
import { deviceCard } from "./device.js";
import { h } from "./dom.js";
import { clock, gpuName, percent, moment } from "./format.js";
import { gathered, prose } from "./notes.js";
import { overview } from "./overview.js";
import { wanted } from "./route.js";
import { serverCard, serverRow } from "./server.js";
import { serverView } from "./serverview.js";

const DEVICE_CARDS = 2; // more than so many become a list
const SERVER_CARDS = 3;
const GRAVE = ["at_risk", "critical", "down"];

const NO_GPU = "The agent shows no GPU. Check that nvidia-smi works on this host; in a container, that the GPUs were "
  + "passed in. A GPU that appears is picked up without a restart.";
const NO_SERVER = "No inference server was found among this host's processes, and the settings name none. One that "
  + "starts is picked up by itself; one that the agent can't see is named by its url: under servers: in the settings.";

export function main(fresh, history, seen) {
  const gpus = new Map(fresh.devices.map((device) => [device.uuid, gpuName(device.gpu)]));
  const view = {
    history, seen, devices: fresh.devices, host: fresh.host_memory, pace: fresh.pace,
    rule: fresh.thresholds.headroom_ratio,
    servers: new Map(fresh.servers.map((server) => [server.name, server])),
    waits: new Set(fresh.collectors.filter((one) => one.waits).map((one) => one.target)),
    faultsOf: (target) => [...new Set(fresh.collectors
      .filter((one) => one.error && target !== "" && one.target === target).map((one) => one.error))],
  };
  const name = wanted();
  if (name !== null) return h("main", { id: "node" }, serverView(name, view));
  return h("main", { id: "node" },
    fresh.servers.length + fresh.devices.length > 0 && coming(fresh.servers, fresh.devices, { links: true, seen }),
    h("div", { class: "columns", "data-key": "overview" },
      h("div", { class: "column", id: "devices", role: "region", "aria-label": "GPUs" }, devices(fresh, view)),
      h("div", { class: "column", id: "servers", role: "region", "aria-label": "Servers" }, servers(fresh, view))),
    collectors(fresh, (target) => gpus.get(target) ?? target));
}

function devices(fresh, view) {
  if (!fresh.devices.length) return missing("No GPU", NO_GPU, fresh, "nvml", "of the GPUs by the driver");
  if (fresh.devices.length > DEVICE_CARDS) return overview(fresh.devices, view);
  return fresh.devices.map((device) => deviceCard(device, view));
}

function servers(fresh, view) {
  if (!fresh.servers.length) return missing("No inference server", NO_SERVER, fresh, "processes", "of this host's processes");
  if (fresh.servers.length <= SERVER_CARDS) return fresh.servers.map((server) => serverCard(server, view));
  return h("section", { class: "card" }, h("h2", {}, "Servers"),
    h("div", { class: "list" }, fresh.servers.map((server) => serverRow(server, view))),
    gathered(fresh.servers.map((server) => [server.name, server.notes]), "servers"));
}

function missing(title, advice, fresh, name, what) {
  if (!fresh.collectors.some((one) => one.name === name)) return waiting(`reading ${what}`);
  const errors = fresh.collectors.filter((one) => one.error && one.name === name && one.target === "");
  return h("article", { class: "card", "data-missing": title },
    h("h2", {}, title), errors.map((one) => h("p", { class: "call" }, prose(one.error))),
    h("p", { class: "note" }, advice));
}

/** What stands where figures will: what has not come yet. */
export function waiting(what) {
  return h("article", { class: "card", "data-waiting": what }, h("p", { class: "note" }, `Waiting for the first ${what}.`));
}

/** The line at the top: where, what, and whether all is well, or that all is old. */
export function status(fresh, isOld) {
  const driver = fresh.devices.find((device) => device.driver)?.driver;
  const least = lowest(fresh.devices);
  const states = tally(fresh.servers.map((server) => server.state));
  const failing = fresh.collectors.filter((one) => one.error).length;
  return h("p", { id: "status" },
    fresh.recording && h("span", { class: "bad", "data-recording": "" },
      `recording of ${moment(fresh.time)}, not this host now${fresh.recording.speed && fresh.recording.speed !== 1
        ? `, ${fresh.recording.speed} times as fast` : ""}`),
    fresh.simulated && h("span", { class: "bad" }, `simulated node, not this host${fresh.pace === 1 ? ""
      : `, ${fresh.pace} times as fast: growth, charts and what is to come are by its own clock`}`),
    h("span", {}, location.host),
    driver && h("span", {}, `driver ${driver}`),
    fresh.devices.length > DEVICE_CARDS && least && h("span", {},
      `${fresh.devices.length} GPUs, lowest headroom ${percent(least.headroom_ratio)} on ${gpuName(least.gpu)}`),
    fresh.servers.length > SERVER_CARDS && h("span", {}, `${fresh.servers.length} servers: ${states}`),
    fresh.reload && !fresh.reload.success && h("span", { class: "bad" }, "settings not reloaded"),
    h("span", { class: failing || isOld ? "sources bad" : "sources" }, isOld ? `figures of ${clock(fresh.time)}, old` : failing
      ? `${failing} of ${fresh.collectors.length} collectors failing` : "all collectors ok"));
}

/** The title of the window: what is gravest, else how much headroom there is. */
export function title({ servers: serving, devices: all }) {
  const [first] = risky(serving, all);
  const least = lowest(all);
  const level = first && levelOf(first);
  const said = GRAVE.includes(level) ? `${level.replace("_", " ")}${first.risk?.held_seconds == null ? "" : ", held"}: ${first.called}`
    : least && `${percent(least.headroom_ratio)} headroom`;
  return `${said ? `${said} · ` : ""}vramscope ${location.host}`;
}

function tally(words) {
  const counts = new Map();
  for (const word of words) counts.set(word, (counts.get(word) ?? 0) + 1);
  return [...counts].map(([word, times]) => `${times} ${word}`).join(", ");
}
