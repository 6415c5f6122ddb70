// The components of a device: their order in the bar, their names, and what each one is.

const DEVICE_FIRST = { reserved: ["Driver reserved", "Kept by the driver for itself"] };

const OF_SERVER = {
  weights: ["Weights", "The model's parameters"],
  kv_used: ["KV used", "KV cache held by live requests"],
  kv_cached: ["KV cached", "KV cache that can be reused or dropped"],
  kv_free: ["KV free", "Room in the KV pool"],
  kv_available: ["KV available", "Room in the KV pool: empty or reusable, the engine does not tell them apart"],
  kv_pool: ["KV pool", "The whole KV pool, used or not"],
  state: ["State", "Recurrent state and caches kept apart from the pool"],
  cuda_graphs: ["CUDA graphs", "Memory of captured graphs"],
  activations: ["Activations", "Temporaries of the forward pass"],
  allocator_slack: ["Allocator slack", "Reserved by the engine's allocator and not in use"],
  context: ["Context", "CUDA context, loaded kernels and libraries: all that is outside the allocator"],
  runtime: ["Runtime", "The rest of the server's processes: context, graphs, temporaries, and what is unexplained"],
};

const DEVICE_LAST = {
  other_processes: ["Other processes", "Processes on this device that belong to no known server"],
  hidden: ["Hidden", "Allocated on the device, in no visible process"],
  host: ["Host memory", "GPU and host share this memory: what the host and its programs hold of it"],
  free: ["Free", "Free on the device"],
};

const ALL = { ...DEVICE_FIRST, ...OF_SERVER, ...DEVICE_LAST };
const ORDER = Object.keys(ALL);

export const label = (component) => ALL[component]?.[0] ?? component;
export const meaning = (component) => ALL[component]?.[1] ?? "";
export const isPool = (component) => component.startsWith("kv_");

export const inOrder = (components) => [...components].sort((a, b) => rank(a) - rank(b));

/** The components of a device in the order they are drawn: driver, server by server, the rest, free. */
export function ordered(device) {
  const servers = serversOf(device);
  const place = (part) => {
    if (part.server) return [1, servers.indexOf(part.server), rank(part.component)];
    return [part.component in DEVICE_FIRST ? 0 : 2, 0, rank(part.component)];
  };
  return [...device.components].sort((a, b) => compare(place(a), place(b)));
}

/** The servers that have a part of the device or a budget for it, in order of their names. */
export function serversOf(device) {
  const names = [...device.components, ...device.budget].map((part) => part.server).filter((name) => name !== "");
  return [...new Set(names)].sort();
}

/** The budget of one component of a server: likely, with low and high where it is a range; null where not known. */
export function bounds(device, server, component) {
  const lines = device.budget.filter((line) => line.server === server && line.component === component);
  const bytes = (bound) => lines.find((line) => line.bound === bound)?.bytes ?? null;
  return { low: bytes("low"), likely: bytes("likely"), high: bytes("high") };
}

function rank(component) {
  const place = ORDER.indexOf(component);
  return place === -1 ? ORDER.indexOf("free") - 0.5 : place;
}

function compare(a, b) {
  const i = a.findIndex((value, at) => value !== b[at]);
  return i === -1 ? 0 : a[i] - b[i];
}
