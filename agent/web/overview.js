// Many devices at one glance: a row each with its memory on one scale, headroom and servers; a row opens to the card.

import { thinBar } from "./bars.js";
import { inOrder, label } from "./components.js";
import { deviceBody, identity, stale } from "./device.js";
import { h } from "./dom.js";
import { fold } from "./folds.js";
import { gib, gpuName, percent, UNKNOWN } from "./format.js";
import { troubles } from "./health.js";
import { gathered, prose } from "./notes.js";
import { risky } from "./outlook.js";
import { gravest } from "./server.js";
import { stack } from "./stack.js";

const FEW = 2; // so many have their charts without being asked

export function overview(devices, view) {
  const most = Math.max(...devices.map((device) => device.total_bytes ?? 0));
  const components = inOrder(new Set(devices.flatMap((device) => device.components.map((part) => part.component))));
  return h("section", { class: "card" },
    h("h2", {}, "GPUs", h("span", { class: "sub" }, "open one for its figures")),
    h("p", { class: "legend" }, components.map((component) => h("span", { class: "key" },
      h("i", { class: "swatch", "data-component": component }), label(component)))),
    h("div", { class: "scale" },
      h("span", { class: "ends" }, most > 0 && [h("span", {}, "0"), h("span", {}, `${gib(most)} GiB`)]),
      h("span", { class: "head" }, "headroom"), h("span", {}, "servers")),
    h("div", { class: "list" }, devices.map((device, i) => row(device, devices[i - 1], most, view))),
    devices.length > FEW ? fold("stacks", "memory over time, all of them", () => stacks(devices, view))
      : stacks(devices, view),
    gathered(devices.map((device) => [gpuName(device.gpu), device.notes]), "GPUs"));
}

function stacks(devices, view) {
  return h("div", { class: "stacks" }, devices.map((device) => stack(device, view, "all")));
}

function row(device, previous, most, view) {
  const first = previous?.index !== device.index;
  const wrong = first ? troubles(device, view.faultsOf(device.uuid)) : view.faultsOf(device.uuid);
  return fold(`gpu ${device.uuid}`, [
    h("span", { class: "name" }, gpuName(device.gpu)),
    device.components.length ? thinBar(device, most) : h("small", { class: "bar" }, "no reading"),
    headroom(device, view),
    servers(device, view),
    risky(device),
    wrong.map((text) => h("span", { class: "wrong" }, prose(text))),
  ], () => [h("p", { class: "sub" }, identity(device)), deviceBody(device, view)], {
    class: first ? "gpu first" : "gpu", "data-gpu": device.gpu, "data-stale": stale(device),
  });
}

function headroom({ headroom_ratio: ratio }, { rule }) {
  return h("span", { class: ratio !== null && ratio < rule ? "headroom bad" : "headroom" },
    ratio === null ? UNKNOWN : percent(ratio), h("small", {}, " headroom"));
}

/** The servers on a device: the one in the gravest state, and how many more. */
function servers(device, view) {
  const names = new Set(device.components.map((part) => part.server));
  const here = gravest([...view.servers.values()].filter(
    (server) => server.devices.includes(device.uuid) || names.has(server.name)));
  if (!here.length) return h("span", { class: "on" }, h("small", {}, "no server"));
  const [{ name, state }] = here;
  return h("span", { class: "on" }, h("span", { class: "tag", "data-state": state }, state), " ",
    h("small", {}, here.length > 1 ? `1 of ${here.length}` : name));
}
