// What is known of a server from inside: fragmentation by its kind, room for transients, memory its allocator ran out of.

import { h } from "./dom.js";
import { known, lines } from "./evidence.js";
import { count, gib, gpuName, percent } from "./format.js";
import { why } from "./tip.js";

const PEAKS = {
  measured: "the allocator's own highest, less what lies there all the time",
  reported: "the trial run in its log",
  predicted: "its budget: nobody has seen such a peak",
};

/** A line for each kind of fragmentation that is known; the kinds are never one number. */
export function fragmentation(server) {
  return server.fragmentation.map((one) => h("p", { class: "foot", "data-fragmentation": one.kind },
    ...(one.kind === "allocator" ? ofAllocator(server, one) : ofBlocks(server, one))));
}

function ofAllocator(server, one) {
  const inside = server.ranks.find((rank) => rank.gpu === one.gpu)?.allocator;
  const text = lines(
    `External fragmentation of the allocator: ${percent(one.high)}`,
    "What the engine's PyTorch holds of the GPU and does not use.",
    inside && `${gib(inside.reserved_bytes)} GiB are reserved, ${gib(inside.active_bytes)} GiB are active.`,
    inside?.largest_free_block_bytes != null
      && `The largest free block within is ${gib(inside.largest_free_block_bytes)} GiB.`,
    inside?.expandable_segments && "Its segments expand.",
    inside && `It is ${known("measured", inside.age_seconds)}`);
  return [`Fragmentation of the allocator on ${gpuName(one.gpu)}: `, why(percent(one.high), { kind: "measured", text,
    label: `${percent(one.high)} of the allocator on ${gpuName(one.gpu)}` }),
    inside && ranOut(inside)];
}

function ranOut({ ooms, alloc_retries: retries }) {
  const counted = [[ooms, "out of memory"], [retries, "allocations tried again"]].filter(([number]) => number > 0);
  return counted.map(([number, what]) => `, ${what}: ${count(number)}`);
}

function ofBlocks(server, one) {
  const several = server.replicas.length > 1;
  const text = lines("Fragmentation inside KV blocks",
    "The share of the slots in handed-out blocks that hold no token, between these bounds.",
    `It is ${known("computed", server.age_seconds)}`);
  return [`Fragmentation inside KV blocks${several ? ` of replica ${one.replica}` : ""}: `,
    why(`${percent(one.low)} to ${percent(one.high)}`, { kind: "computed", text,
      label: `${percent(one.low)} to ${percent(one.high)} inside KV blocks` })];
}

/** The room for transients of each server on a device: a call where the highest peak would not find room. */
export function transients(device) {
  return Object.entries(device.transients).filter(([, one]) => one.peak_bytes !== null && one.room_bytes !== null)
    .map(([server, one]) => h("p", {
      class: one.peak_bytes > one.room_bytes ? "call" : "foot", "data-transient": server, "data-key": `room ${server}`,
    }, why(sentence(server, one), { kind: one.peak_evidence === "predicted" ? undefined : one.peak_evidence,
      text: lines("Room for transients", `The peak is from ${PEAKS[one.peak_evidence]}.`,
        one.room_evidence === "measured" ? "The room is what is free, and what its allocator holds for temporaries."
          : "The room is this server's part of the headroom.") })));
}

function sentence(server, { peak_bytes: peak, room_bytes: room }) {
  return `${server}: a prefill needs ${peak > room ? "" : "up to "}${gib(peak)} GiB for a moment, ${gib(room)} GiB are there.`;
}
