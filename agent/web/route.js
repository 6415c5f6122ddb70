// Which view the address asks for: `#server/NAME`, else the overview.

import { h } from "./dom.js";

const START = "#server/";

/** The server that the address names, null for the overview. */
export function wanted() {
  if (!location.hash.startsWith(START)) return null;
  try {
    return decodeURIComponent(location.hash.slice(START.length));
  } catch {
    return location.hash.slice(START.length);
  }
}

export const addressOf = (server) => START + encodeURIComponent(server);

export function serverLink(name) {
  return h("a", { href: addressOf(name) }, name);
}

/** Draw anew when the address asks for another view; the keyboard goes on at its heading, or where it came from. */
export function onRoute(redraw) {
  let before = wanted();
  document.getElementById("skip").addEventListener("click", (event) => {
    event.preventDefault();
    document.querySelector("#servers a, #view h2")?.focus();
  });
  window.addEventListener("hashchange", () => {
    redraw();
    const came = [...document.querySelectorAll("#node a")].find((link) => link.hash === addressOf(before ?? ""));
    const heading = document.querySelector("#view h2");
    before = wanted();
    if (before !== null) window.scrollTo(0, 0);
    (before === null ? came : heading)?.focus();
  });
}
