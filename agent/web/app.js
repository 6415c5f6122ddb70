// The node page: draws each snapshot as it comes, and says so when none does.

import { calmed } from "./collectors.js";
import { changes } from "./coming.js";
import { paintCursor } from "./cursor.js";
import { h, update } from "./dom.js";
import { onFold } from "./folds.js";
import { clock, duration } from "./format.js";
import { History } from "./history.js";
import { AgentFault, follow, UNREACHABLE } from "./live.js";
import { onPause, pauseButton, pausedNote } from "./pause.js";
import { loadHistory, onRange, rangeButtons } from "./range.js";
import { onRoute } from "./route.js";
import { refreshTip } from "./tip.js";
import { Seen } from "./seen.js";
import { main, status, title, waiting } from "./view.js";

const SCHEMA = "vramscope.snapshot/1";
const LOOK_MS = 1000;
const STALE_MS = 3500; // a few missed snapshots
const FROZEN_MS = 5000; // the agent answers, always with the same snapshot

const node = document.getElementById("node");
const banner = document.getElementById("banner");
const history = new History();
const seen = new Seen();
let isOld = false; // what is on the page
let heardAt = null; // performance.now() of the last sign of the agent
let changedAt = null; // of the last new snapshot
let drawn = null; // the snapshot on the page
let newest = null; // another one while the page is paused
let paused = false;
let fault = null;

async function take(fresh) {
  try {
    if (fresh.schema !== SCHEMA) throw new AgentFault("Page and agent are of different versions: reload this page");
    const wasSilent = changedAt === null || performance.now() - changedAt > STALE_MS;
    if (fresh.time !== newest?.time) changedAt = performance.now();
    newest = fresh;
    if (paused) showPause();
    else {
      if (wasSilent) await loadHistory(history);
      show(fresh);
    }
    hear(null);
  } catch (error) {
    hear(error);
  }
}

function show(fresh) {
  history.extend(fresh);
  seen.extend(fresh);
  const risen = drawn && changes(drawn, fresh);
  draw(fresh);
  if (risen) say(risen);
}

/** Stand still, or go on with what the agent says now. */
function pause() {
  if (drawn === null) return;
  paused = !paused;
  const isIn = document.getElementById("paused").contains(document.activeElement);
  showPause();
  if (isIn) document.querySelector("#pause button").focus();
  say(paused ? `Paused at ${clock(drawn.time)}` : "Live again");
  if (!paused) reload();
}

function reload() {
  loadHistory(history).then(() => show(paused ? drawn : newest)).catch(hear);
}

function say(text) {
  setText(document.getElementById("said"), text);
}

function hear(error) {
  fault = error;
  if (error === null) heardAt = performance.now();
  else if (!(error instanceof AgentFault)) console.error(error);
  showFreshness();
}

function draw(fresh) {
  drawn = calmed(fresh);
  update(node, main(drawn, history, seen));
  update(document.getElementById("version"), h("span", { id: "version" }, `vramscope ${fresh.version}`));
  update(document.getElementById("range"), rangeButtons(fresh));
  showPause();
  refreshTip();
  paintCursor();
}

function showPause() {
  update(document.getElementById("pause"), pauseButton(paused));
  update(document.getElementById("paused"), pausedNote(paused ? drawn.time : null, newest.time));
  node.toggleAttribute("data-paused", paused);
  showTitle();
}

function showTitle() {
  update(document.getElementById("status"), status(drawn, isOld));
  const text = document.hidden || paused || isOld ? `${isOld ? "old figures" : "paused"} · vramscope ${location.host}`
    : title(drawn);
  if (document.title !== text) document.title = text;
}

/** An old value never passes for a fresh one: the banner says how old, and the figures are greyed. */
function showFreshness() {
  const now = performance.now();
  const silent = fault !== null || (heardAt !== null && now - heardAt > STALE_MS);
  const frozen = !silent && changedAt !== null && now - changedAt > FROZEN_MS;
  isOld = silent || frozen;
  banner.hidden = !isOld;
  node.toggleAttribute("data-stale", isOld);
  if (drawn) showTitle();
  if (banner.hidden) return;
  const [what, when] = banner.children;
  const still = drawn?.recording ? "The recording is over, or stands still" : "The agent answers, but its figures stand still";
  setText(what, frozen ? still : saying(fault));
  setText(when, changedAt === null ? ", no figures yet."
    : `, last update ${duration((now - changedAt) / 1000)} ago. The figures below are old.`);
}

function saying(error) {
  if (error === null) return UNREACHABLE;
  return error instanceof AgentFault ? error.message : `This page can't draw the figures (${error.message})`;
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

update(node, h("main", { id: "node" }, waiting(`snapshot of the agent at ${location.host}`)));
setInterval(() => document.hidden || showFreshness(), LOOK_MS);
onFold(() => draw(drawn));
onRange(() => drawn && reload());
onPause(pause);
onRoute(() => drawn && draw(drawn));
document.addEventListener("visibilitychange", () => drawn && showTitle());
follow({ take, hear });
