// What is wrong with a GPU, in sentences that a person should act on.

import { count } from "./format.js";

// Xid errors that come from the hardware (NVIDIA's Xid catalogue); the others are an application's as a rule.
const GRAVE = {
  48: "double-bit ECC error", 64: "a row remap failed", 79: "it has fallen off the bus",
  94: "contained ECC error: restart the process it hit", 95: "uncontained ECC error: it needs a reset",
  119: "its system processor does not answer", 120: "error of its system processor",
  140: "unrecovered ECC error: it needs a reset",
};

/** Sentences for a device: `faults` of the collectors that failed on it, then what the hardware says of itself. */
export function troubles({ health }, faults) {
  if (!health) return faults;
  const { lost, ecc_uncorrected: ecc, row_remap_pending: pending, row_remap_failure: failure } = health;
  return [
    ...faults,
    lost && !faults.length && "The GPU is lost: it does not answer any more.",
    failure && "A row of its memory could not be remapped: have the GPU replaced.",
    pending && "A row of its memory waits to be remapped: drain the GPU and reset it.",
    ecc > 0 && `${count(ecc)} uncorrectable memory errors since its driver was loaded.`,
    ...events(health).filter(([xid]) => xid in GRAVE).map(([xid, times]) =>
      `Xid ${xid}, ${GRAVE[xid]}: ${count(times)} since the agent's start.`),
  ].filter((text) => text);
}

/** Errors that are an application's as a rule, as one sentence; null where there are none. */
export function applicationErrors({ health }) {
  const others = health ? events(health).filter(([xid]) => !(xid in GRAVE)) : [];
  return others.length ? `Errors since the agent's start, an application's as a rule: ${
    others.map(([xid, times]) => `Xid ${xid} (${count(times)})`).join(", ")}.` : null;
}

function events({ xids }) {
  return Object.entries(xids).filter(([, times]) => times > 0);
}
