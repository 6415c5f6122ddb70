// Snapshots as the agent makes them: by server-sent events, else by asking each second. While the tab is hidden, nothing.

const STREAM = "api/v1/events";
const POLL_MS = 1000;
const DEADLINE_MS = 4000;
const SILENT_MS = 8000; // the agent says something every two seconds
const BACK_OFF_MS = [1000, 2000, 5000, 15000, 30000]; // from a stream that failed to the next one

export class AgentFault extends Error {}

export const UNREACHABLE = "Agent not reachable";

/** The JSON that the agent answers with; an AgentFault says why there is none. */
export async function get(path, deadline = DEADLINE_MS) {
  let response;
  let text;
  try {
    response = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(deadline) });
    text = await response.text();
  } catch {
    throw new AgentFault(UNREACHABLE);
  }
  if (response.ok) return JSON.parse(text);
  throw new AgentFault(`The agent answered ${response.status}: ${text.slice(0, 300).trim()}`);
}

/** Follow the agent: `take` gets each snapshot, `hear` a fault, or null where the agent is there with nothing new. */
export function follow({ take, hear }) {
  let stream = null;
  let timer = 0;
  let failures = 0;
  let heardAt = 0;
  let streamAt = 0; // when to try a stream again

  function open() {
    heardAt = performance.now();
    stream = new EventSource(STREAM);
    stream.addEventListener("message", ({ data }) => {
      failures = 0;
      heardAt = performance.now();
      take(JSON.parse(data));
    });
    stream.addEventListener("beat", ({ data }) => {
      heardAt = performance.now();
      const reason = JSON.parse(data);
      hear(reason && new AgentFault(`The agent has no current figures: ${reason}`));
    });
    stream.addEventListener("error", fail);
  }

  function close() {
    stream?.close();
    stream = null;
  }

  function fail() {
    close();
    streamAt = performance.now() + BACK_OFF_MS[Math.min(failures, BACK_OFF_MS.length - 1)];
    failures += 1;
    clearTimeout(timer);
    turn();
  }

  async function ask() {
    try {
      take(await get("api/v1/snapshot"));
    } catch (error) {
      hear(error);
    }
  }

  /** Once a second: ask where there is no stream, and see whether the stream still lives. */
  async function turn() {
    const start = performance.now();
    if (!stream && start >= streamAt) open();
    else if (!stream) await ask();
    else if (start - heardAt > SILENT_MS) return fail();
    clearTimeout(timer); // of another turn, begun while this one waited
    if (!document.hidden) timer = setTimeout(turn, Math.max(100, POLL_MS - (performance.now() - start)));
    return null;
  }

  document.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    if (document.hidden) close();
    else turn();
  });
  if (!document.hidden) turn();
}
