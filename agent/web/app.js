// The node page: asks the agent for its snapshot once a second, draws it, and says so when it can't.

import { History } from "./chart.js";
import { h, update } from "./dom.js";
import { onFold } from "./folds.js";
import { duration } from "./format.js";
import { refreshTip } from "./tip.js";
import { main, status, title } from "./view.js";

const SCHEMA = "vramscope.snapshot/1";
const UNREACHABLE = "Agent not reachable";
const POLL_MS = 1000;
const DEADLINE_MS = 4000;
const STALE_MS = 3500; // a few missed polls; also when a poll hangs
const FROZEN_MS = 5000; // the agent answers, always with the same snapshot

const node = document.getElementById("node");
const banner = document.getElementById("banner");
const history = new History();
let drawnAt = null; // performance.now() of the last answer that was drawn
let changedAt = null; // of the last one that brought a new snapshot
let snapshotTime = null; // the agent's own clock
let drawn = null; // the snapshot on the page
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
  drawn = fresh;
  update(node, main(fresh, history));
  update(document.getElementById("version"), h("span", { id: "version" }, `vramscope ${fresh.version}`));
  update(document.getElementById("status"), status(fresh));
  if (document.title !== title(fresh)) document.title = title(fresh);
  refreshTip();
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
  const still = drawn?.recording ? "The recording is over, or stands still" : "The agent answers, but its figures stand still";
  setText(what, frozen ? still : fault ?? UNREACHABLE);
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
onFold(() => draw(drawn));
run();
