// Keys that work wherever the focus is; who speaks to the computer, or has them for other things, switches them off.

export function onKey(act) {
  document.addEventListener("keydown", ({ key, ctrlKey, metaKey, altKey, repeat }) => {
    if (!ctrlKey && !metaKey && !altKey && !repeat && document.getElementById("keys").checked) act(key);
  });
}
