// Elements built from values, and an update that keeps what is already on the page (selection, focus, hover).
// Text only ever enters as text nodes and attributes: nothing here parses HTML.

const SVG = "http://www.w3.org/2000/svg";

// A person opens and closes details; the style attribute is out of bounds for the page's content security policy,
// its object is not.
const KEPT = ["open", "style"];

/** An HTML element. Attributes that are null, undefined or false are left out; so are such children. */
export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** An SVG element, likewise. */
export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Change `old` into `fresh`, touching only what differs. */
export function morph(old, fresh) {
  if (old.nodeName !== fresh.nodeName) return old.replaceWith(fresh);
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return undefined;
  }
  morphAttributes(old, fresh);
  const before = [...old.childNodes];
  const after = [...fresh.childNodes];
  after.forEach((node, i) => (i < before.length ? morph(before[i], node) : old.append(node)));
  before.slice(after.length).forEach((node) => node.remove());
  return undefined;
}

function morphAttributes(old, fresh) {
  for (const { name } of [...old.attributes]) {
    if (!KEPT.includes(name) && !fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (!KEPT.includes(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  if (old.style.cssText !== fresh.style.cssText) old.style.cssText = fresh.style.cssText;
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name === "width") element.style.width = value;
    else if (known(value)) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter(known));
  return element;
}

function known(value) {
  return value !== null && value !== undefined && value !== false;
}
