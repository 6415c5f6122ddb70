// How a server is known and was started, behind a disclosure: settings or discovery, model, arguments, ranks, pids.

import { h } from "./dom.js";
import { fold } from "./folds.js";
import { count, gib, gpuName, moment, plural } from "./format.js";

export function origin(server) {
  const names = Object.keys(server.arguments);
  const summary = `how it was ${server.configured ? "configured" : "found"}: ${
    plural(names.length, "argument")}, ${plural(server.pids.length, "pid")}`;
  return fold(`origin ${server.name}`, summary, () => h("dl", { class: "origin" },
    entry("known by", server.configured ? "the settings" : "its processes on this host; the settings do not name it"),
    entry("started", server.started_at !== null && moment(server.started_at)),
    entry("model path", server.model_path ?? "not known: no budget, and weights stay inside runtime"),
    entry("longest request", request(server)),
    entry("ranks", server.ranks.length > 0 && server.ranks.map(rankText).join("; ")),
    entry("container", server.container && containerText(server.container)),
    entry("ran out", server.log && failuresText(server.log)),
    entry("killed by the host", server.host_oom_kills > 0 && `${plural(server.host_oom_kills, "time")} for want of memory`),
    entry("pids", server.pids.length > 0 ? server.pids.join(", ") : "not known"),
    entry("arguments", names.length === 0 ? "not known" : [
      h("dl", { class: "arguments" }, names.sort().map((name) => h("div", { "data-key": name },
        h("dt", {}, name), h("dd", { "data-argument": name }, text(server.arguments[name]))))),
      h("small", {}, "From the settings, else from its command line, else as the engine reports. What is not here is "
        + "the engine's default."),
    ])));
}

function entry(name, value) {
  return value ? h("div", { "data-key": name }, h("dt", {}, name), h("dd", { "data-origin": name }, value)) : null;
}

function request({ max_request_tokens: tokens, max_request_bytes: bytes }) {
  return tokens !== null && `${count(tokens)} tokens${bytes === null ? "" : `, ${gib(bytes)} GiB of the pool`}`;
}

function rankText(rank) {
  const where = gpuName(rank.gpu);
  if (rank.tp_rank === null) return `${where}: its rank is not known`;
  return `${where}: TP ${rank.tp_rank}, PP ${rank.pp_rank}, replica ${rank.replica}`;
}

function containerText(container) {
  const named = [["namespace", container.namespace], ["pod", container.pod], ["container", container.name],
    ["unit", container.unit], ["runtime", container.runtime], ["id", container.id?.slice(0, 12)]];
  return named.filter(([, value]) => value).map(([name, value]) => `${name} ${value}`).join(", ");
}

/** Memory that ran out by the server's log, and when it did last. */
function failuresText({ failures, last_failure: last }) {
  const counted = Object.entries(failures).filter(([, times]) => times > 0).map(([kind, times]) => `${kind} ${times}`);
  return counted.length > 0 && `${counted.join(", ")}; the last one ${plural(Math.round(last.age_seconds), "second")} ago`;
}

function text(value) {
  return Array.isArray(value) ? value.join(", ") : String(value);
}
