// Use of pools and devices over the last minutes, kept while the page is open.

const KEPT_SECONDS = 600;
const LONG_SECONDS = 1800; // of devices, of which a look is kept now and then only
const STEP_SECONDS = 5;
const GAP_SECONDS = 30; // a longer silence is drawn as a gap, as is every unknown value

/** Points of all pools and looks at all devices, loaded from the agent's history and then extended by each snapshot. */
export class History {
  #points = new Map();
  #devices = new Map();
  #kept = KEPT_SECONDS;

  /** `recorded` is what is older, of a recorder; `minutes`: how many are shown, without them what there is. Points of a
   * pool from before a restart, which the agent forgets, stay. */
  load(recent, recorded = null, minutes = null) {
    this.span = minutes && minutes * 60;
    this.#kept = Math.max(KEPT_SECONDS, this.span ?? 0);
    for (const pool of [...recorded?.pools ?? [], ...recent.pools]) {
      const name = key(pool.server, pool);
      this.#points.set(name, joined(this.#points.get(name) ?? [], pool.points));
    }
    for (const { uuid, components, points } of recent.devices ?? []) {
      this.#device(uuid).load(components, points);
    }
    for (const { uuid, used } of recorded?.devices ?? []) this.#device(uuid).used = used;
  }

  /** A pool that the snapshot lacks has no known use at its time; one that lacked it for long is forgotten. */
  extend({ time: now, servers, devices, recording }) {
    this.gap = GAP_SECONDS * Math.max(1, recording?.speed ?? 1);
    const used = new Map(servers.flatMap((server) => server.pools.map((pool) => [key(server.name, pool), pool])));
    for (const name of new Set([...this.#points.keys(), ...used.keys()])) {
      const points = this.#points.get(name) ?? [];
      cut(points, now, this.#kept);
      const pool = used.get(name);
      points.push([now, pool?.used_tokens ?? null, pool?.cached_tokens ?? null, pool?.capacity_tokens]);
      if (pool || points.some(([, tokens]) => tokens !== null)) this.#points.set(name, points);
      else this.#points.delete(name);
    }
    for (const device of devices) this.#device(device.uuid).extend(now, device);
    for (const [uuid, { points }] of this.#devices) if (!points.length) this.#devices.delete(uuid);
  }

  of(server, pool) {
    return this.#points.get(key(server, pool)) ?? [];
  }

  /** The looks at a device, undefined where there is none. */
  ofDevice(uuid) {
    return this.#devices.get(uuid);
  }

  #device(uuid) {
    if (!this.#devices.has(uuid)) this.#devices.set(uuid, new Looks());
    return this.#devices.get(uuid);
  }
}

/** A device: `components` names what the bytes of each point are of, `used` is what a recorder knows of the time before. */
class Looks {
  components = [];
  points = [];
  used = [];

  load(components, points) {
    const known = points.map(([time, sizes]) => [time, summed(this.components, components, sizes)]);
    this.points = joined(this.points, known);
  }

  extend(now, { components }) {
    cut(this.points, now, LONG_SECONDS);
    if (this.points.length && now < this.points.at(-1)[0] + STEP_SECONDS) return;
    const names = components.map((part) => part.component);
    const sizes = components.map((part) => part.bytes);
    this.points.push([now, names.length ? summed(this.components, names, sizes) : null]);
  }
}

/** Bytes by component in the order of `known`, which grows by what is new; those of several servers are one. */
function summed(known, names, sizes) {
  const sums = [];
  names.forEach((name, i) => {
    if (!known.includes(name)) known.push(name);
    const at = known.indexOf(name);
    if (sizes[i] !== null) sums[at] = (sums[at] ?? 0) + sizes[i];
  });
  return sums;
}

/** The points of `old` that are before all of `recent`, and these; what nobody looked at in between is not known. */
function joined(old, recent) {
  const first = recent[0]?.[0] ?? Infinity;
  const older = old.filter(([time]) => time < first);
  const last = older.at(-1)?.[0];
  if (first - last > 2 * STEP_SECONDS && recent.length) older.push([last + 1, null]);
  return [...older, ...recent];
}

/** Without what is older than so many seconds, or not before `now`. */
function cut(points, now, seconds) {
  while (points.length && points[0][0] < now - seconds) points.shift();
  while (points.length && points.at(-1)[0] >= now) points.pop();
}

function key(server, pool) {
  return JSON.stringify([server, pool.replica, pool.kind]);
}
