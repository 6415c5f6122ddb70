// Used tokens of all pools over the last minutes, kept while the page is open.

const KEPT_SECONDS = 600;
const GAP_SECONDS = 30; // a longer silence is drawn as a gap, as is every unknown value

/** Points of all pools, loaded from the agent's history and then extended by each snapshot. */
export class History {
  #points = new Map();
  #kept = KEPT_SECONDS;

  /** `minutes`: how many are kept and shown; without them, what there is of the last ten. */
  load(document, minutes = null) {
    this.span = minutes && minutes * 60;
    this.#kept = Math.max(KEPT_SECONDS, this.span ?? 0);
    this.#points.clear();
    for (const pool of document.pools) this.#points.set(key(pool.server, pool), pool.points);
  }

  /** A pool that the snapshot lacks has no known use at its time; one that lacked it for long is forgotten. */
  extend({ time: now, servers, recording }) {
    this.gap = GAP_SECONDS * Math.max(1, recording?.speed ?? 1);
    const used = new Map(servers.flatMap(
      (server) => server.pools.map((pool) => [key(server.name, pool), pool.used_tokens])));
    for (const name of new Set([...this.#points.keys(), ...used.keys()])) {
      const points = this.#points.get(name) ?? [];
      while (points.length && points[0][0] < now - this.#kept) points.shift();
      while (points.length && points.at(-1)[0] >= now) points.pop();
      points.push([now, used.get(name) ?? null]);
      if (used.has(name) || points.some(([, tokens]) => tokens !== null)) this.#points.set(name, points);
      else this.#points.delete(name);
    }
  }

  of(server, pool) {
    return this.#points.get(key(server, pool)) ?? [];
  }
}

function key(server, pool) {
  return JSON.stringify([server, pool.replica, pool.kind]);
}
