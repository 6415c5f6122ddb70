// The sources of all figures: what fails and why comes first, and one sentence says that the rest works.

import { h } from "./dom.js";
import { fold } from "./folds.js";
import { count, duration, moment, UNKNOWN } from "./format.js";

export const WAITS = "waiting for it to listen";
const ONCE = "model"; // read once, not again and again: its age is no delay
const NATURAL = new Intl.Collator("en", { numeric: true });

/** A snapshot in which it is no fault that nothing listens yet where a server loads. */
export function calmed(fresh) {
  const isLoading = (target) => fresh.servers.some(({ name, state }) => name === target && state === "loading");
  return { ...fresh, collectors: fresh.collectors.map((one) => (one.error?.startsWith("nothing listens")
    && one.name === "endpoint" && isLoading(one.target) ? { ...one, error: null, waits: true } : one)) };
}

/** The view of all collectors; `nameOf` gives a target the name that people know it by. */
export function collectors({ collectors: unsorted, reload }, nameOf) {
  const name = (one) => `${one.error ? 0 : 1} ${one.name} ${nameOf(one.target)}`;
  const all = [...unsorted].sort((a, b) => NATURAL.compare(name(a), name(b)));
  const failing = all.filter((one) => one.error);
  return h("section", { class: "card", id: "collectors" }, h("h2", {}, "Collectors"),
    reload && !reload.success && h("p", { class: "call", "data-reload": "failed" },
      h("b", {}, "The settings could not be reloaded. "), "The agent's log says what is wrong with the new ones; ",
      reload.at === null ? "the old ones" : `those of ${moment(reload.at)}`, " stay in force."),
    alike(failing).map((group) => failure(group, nameOf)),
    h("p", { class: "note" }, sentence(all, failing)),
    all.length > 0 && fold("collectors", "every collector", () => table(all, nameOf)));
}

function alike(failing) {
  const groups = new Map();
  for (const one of failing) groups.set(one.error, [...(groups.get(one.error) ?? []), one]);
  return [...groups];
}

function failure([error, group], nameOf) {
  const names = group.map((one) => `${one.name} ${nameOf(one.target)}`.trim()).join(", ");
  const ages = group.map((one) => one.age_seconds);
  const reasons = new Map();
  for (const [reason, times] of group.flatMap((one) => Object.entries(one.failures))) {
    reasons.set(reason, (reasons.get(reason) ?? 0) + times);
  }
  const counted = counts([...reasons]);
  return h("div", { class: "call", "data-key": error, "data-failing": group.length },
    h("p", {}, h("b", {}, names), ": ", error),
    h("p", {}, h("small", {}, counted && `Failed since the agent's start: ${counted}. `,
      ages.includes(null) ? "It never answered." : `Last answer ${duration(Math.max(...ages))} ago.`)));
}

function counts(reasons) {
  return reasons.filter(([, times]) => times > 0).map(([reason, times]) => `${reason} ${count(times)}`).join(", ");
}

function sentence(all, failing) {
  const working = all.filter((one) => one.success);
  if (!working.length) return all.length ? "No collector works." : "No collector has been asked yet.";
  const oldest = Math.max(0, ...working.map((one) => (one.name === ONCE ? 0 : one.age_seconds)));
  const who = failing.length ? `The other ${working.length} work`
    : `${working.length < all.length ? `${working.length} of ${all.length}` : `All ${all.length}`} collectors work`;
  return `${who}; the oldest answer is ${duration(oldest)} old.`;
}

function table(all, nameOf) {
  const heads = ["collector", "target", "last answer", "age", "failures"];
  return h("table", { class: "collectors" },
    h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
    h("tbody", {}, all.map((one) => h("tr", {
      "data-key": `${one.name} ${one.target}`, "data-collector": one.name, "data-success": String(one.success),
    },
      h("td", {}, one.name), h("td", {}, nameOf(one.target)),
      h("td", { class: one.error ? "bad" : "" }, one.success ? "ok" : one.error ? "failed" : one.waits ? WAITS : "not yet"),
      h("td", {}, one.age_seconds === null ? UNKNOWN : duration(one.age_seconds), one.name === ONCE && ", read once"),
      h("td", {}, counts(Object.entries(one.failures)))))));
}
