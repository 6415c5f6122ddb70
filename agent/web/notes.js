// What is not known, or to be known, about many things at once: each sentence stands once, with whom it concerns.

import { h } from "./dom.js";

/** A sentence as the page prints it: with a capital where it begins with a plain word, a true minus before
 * bytes, and `quoted` words as code. */
export function prose(text) {
  return quoted(text.replace(/^[a-z]+(?= )/, (word) => word[0].toUpperCase() + word.slice(1))
    .replace(/(?<= )-(?=[\d.,]+ [KMG]?i?B\b)/g, "\u2212"));
}

export function notes(sentences) {
  return sentences.length ? h("ul", { class: "notes" }, sentences.map((text) => h("li", {}, prose(text)))) : null;
}

/** The notes of many, `[name, sentences]` each; `all` is what they are called together. */
export function gathered(things, all) {
  const concerned = new Map();
  for (const [name, sentences] of things) {
    for (const text of new Set(sentences)) concerned.set(text, [...(concerned.get(text) ?? []), name]);
  }
  if (!concerned.size) return null;
  const who = (names) => (names.length > 1 && names.length === things.length ? `all ${all}` : names.join(", "));
  return h("ul", { class: "notes", "data-notes": all }, [...concerned].map(
    ([text, names]) => h("li", { "data-key": text }, h("b", {}, who(names)), ": ", quoted(text))));
}

function quoted(text) {
  return text.split("`").map((part, i) => (i % 2 ? h("code", {}, part) : part));
}
