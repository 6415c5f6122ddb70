// What a server holds since it was started anew, beside what its run before held: one line, and each component behind it.

import { label } from "./components.js";
import { h } from "./dom.js";
import { fold } from "./folds.js";
import { gib, gpuName, moment, plural, signedGib } from "./format.js";
import { prose } from "./notes.js";

/** The line and the disclosure of one server; nothing where there is no run before. */
export function upgrade(server) {
  const found = server.upgrade;
  if (!found) return null;
  return h("section", { class: "upgrade", "data-upgrade": server.name },
    h("p", {}, prose(found.summary)),
    found.components.length > 0 && fold(`upgrade ${server.name}`,
      `both runs, ${plural(found.components.length, "component")}`, () => table(found)));
}

function table(found) {
  const several = new Set(found.components.map((moved) => moved.gpu)).size > 1;
  const head = (text) => h("th", { scope: "col" }, text);
  return [
    h("table", { class: "figures" },
      h("thead", {}, h("tr", {}, head("component"), head(`${found.from_version ?? "before"}, GiB`),
        head(`${found.to_version ?? "now"}, GiB`), head("difference"))),
      h("tbody", {}, found.components.map((moved) => row(moved, several)))),
    h("p", { class: "foot" }, `Each as it lay still: before at ${moment(found.from_settled_at)}, since then at ${
      moment(found.to_settled_at)}.`),
  ];
}

function row(moved, several) {
  const where = several ? `${gpuName(moved.gpu)} ` : "";
  return h("tr", { "data-key": `${moved.uuid} ${moved.component}`, "data-moved": moved.component },
    h("th", { scope: "row" }, h("i", { class: "swatch", "data-component": moved.component }),
      `${where}${label(moved.component)}`),
    h("td", {}, gib(moved.before_bytes)), h("td", {}, gib(moved.after_bytes)),
    h("td", { "data-delta": moved.delta_bytes }, signedGib(moved.delta_bytes)));
}
