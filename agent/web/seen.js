// What the page has seen of each server: what the agent can't tell of one that is down or loads, and since when it is so.

import { duration } from "./format.js";

const KEPT_SECONDS = 600;
const GAP_SECONDS = 30; // what happened in a longer silence was not seen
const NOTHING = { devices: [], pools: [] };

export class Seen {
  #servers = new Map();

  extend({ time: now, servers, pace }) {
    for (const { name, state, ...fresh } of servers) {
      const old = this.#servers.get(name) ?? NOTHING;
      const isNew = old.state !== state || old.at > now;
      const kept = (field) => (fresh[field]?.length ? fresh[field] : old[field]);
      this.#servers.set(name, {
        at: now, pace, state, since: isNew ? now : old.since, isSeen: isNew ? now - old.at < GAP_SECONDS : old.isSeen,
        devices: kept("devices"), pools: kept("pools"), model: kept("model"), version: kept("version"),
      });
    }
    for (const [name, { at }] of this.#servers) if (at < now - KEPT_SECONDS) this.#servers.delete(name);
  }

  /** What was known last of a server that is away. */
  before(server) {
    return isAway(server) ? this.#servers.get(server.name) : NOTHING;
  }

  /** How long a server has been in its state. */
  lasting({ name }) {
    const { at, since, isSeen, pace } = this.#servers.get(name);
    return `for ${duration((at - since) * pace)}${isSeen ? "" : " or longer"}`;
  }
}

export const isAway = ({ state }) => ["down", "loading"].includes(state);
