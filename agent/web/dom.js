// What the page should be, as plain values, and an update that touches only what differs from the last time: so what is
// on the page stays (selection, focus, hover), and an update costs little. Text only ever enters as text nodes and
// attributes: nothing here parses HTML.

const SVG = "http://www.w3.org/2000/svg";

const drawn = new WeakMap(); // what was last drawn into an element of the document

/** An HTML element. Attributes and children that are null, undefined or false are left out; `width` is in CSS. */
export function h(tag, attributes, ...children) {
  return described(tag, null, attributes, children);
}

export function svg(tag, attributes, ...children) {
  return described(tag, SVG, attributes, children);
}

/** Make an element of the document what `fresh` says. Siblings with a `data-key` are told apart by it. */
export function update(element, fresh) {
  const focused = document.activeElement;
  const { nodeName } = element;
  patch(drawn.get(element) ?? { tag: nodeName.toLowerCase(), attributes: {}, children: [], node: element }, fresh);
  drawn.set(element, fresh);
  if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true }); // it moved
}

function described(tag, space, given, children) {
  const attributes = {};
  for (const name in given) if (known(given[name])) attributes[name] = given[name];
  const content = children.flat(Infinity).filter(known);
  return { tag, space, attributes, key: attributes["data-key"], node: null,
    children: content.map((child) => (child.tag ? child : { tag: "#text", text: String(child), node: null })) };
}

/** Change the node of `old` into what `fresh` says; the node, or the one that took its place. */
function patch(old, fresh) {
  if (old === fresh) return old.node;
  if (old.tag !== fresh.tag) {
    old.node.replaceWith(create(fresh));
    return fresh.node;
  }
  fresh.node = old.node;
  if (fresh.tag === "#text") {
    if (old.text !== fresh.text) fresh.node.data = fresh.text;
  } else {
    patchAttributes(fresh.node, old.attributes, fresh.attributes);
    patchChildren(fresh.node, old.children, fresh.children);
  }
  return fresh.node;
}

function patchAttributes(node, before, after) {
  for (const name in before) if (!(name in after)) remove(node, name);
  for (const name in after) if (before[name] !== after[name]) set(node, name, after[name]);
}

function patchChildren(parent, before, after) {
  if (before.length === after.length && before.every((child, i) => child.key === after[i].key)) {
    before.forEach((child, i) => patch(child, after[i]));
    return;
  }
  const wanted = new Set(after.map((child) => child.key));
  const keyed = new Map();
  const plain = [];
  for (const child of before) {
    if (child.key === undefined) plain.push(child);
    else if (wanted.has(child.key) && !keyed.has(child.key)) keyed.set(child.key, child);
    else child.node.remove();
  }
  let at = parent.firstChild;
  for (const child of after) {
    const match = child.key === undefined ? plain.shift() : keyed.get(child.key);
    keyed.delete(child.key);
    const inPlace = match !== undefined && match.node === at;
    const node = match ? patch(match, child) : create(child);
    if (inPlace) at = node.nextSibling;
    else parent.insertBefore(node, at);
  }
  for (const child of plain) child.node.remove();
}

function create(fresh) {
  if (fresh.tag === "#text") fresh.node = document.createTextNode(fresh.text);
  else {
    fresh.node = fresh.space ? document.createElementNS(fresh.space, fresh.tag) : document.createElement(fresh.tag);
    patchAttributes(fresh.node, {}, fresh.attributes);
    fresh.node.append(...fresh.children.map(create));
  }
  return fresh.node;
}

// The style attribute is out of bounds for the page's content security policy, its object is not.
function set(node, name, value) {
  if (name === "width") node.style.width = value;
  else node.setAttribute(name, value);
}

function remove(node, name) {
  if (name === "width") node.style.width = "";
  else node.removeAttribute(name);
}

function known(value) {
  return value !== null && value !== undefined && value !== false;
}
