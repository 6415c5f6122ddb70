"""What a person does at the page and what they see of it: pointer, keys and touch; contrast, and what sticks out."""

from typing import Any

from tests.browser import Page

KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "PageDown": 34, "End": 35, "Home": 36, "ArrowLeft": 37}
KEYS |= {"ArrowRight": 39, "p": 80, "+": 187, "-": 189}

UNREADABLE = """() => {
  const channel = (value) => (value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const probe = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
  const luminance = (color) => {
    probe.fillStyle = color;
    probe.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...probe.getImageData(0, 0, 1, 1).data].map(channel);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = getComputedStyle(at).backgroundColor;
      if (color !== "rgba(0, 0, 0, 0)") return color;
    }
  };
  const texts = [...document.querySelectorAll("body *")].filter((element) => element.getClientRects().length
    && [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim()));
  return texts.map((element) => {
    const pair = [luminance(getComputedStyle(element).color), luminance(ground(element))].sort((a, b) => b - a);
    return [(pair[0] + 0.05) / (pair[1] + 0.05), element.innerText];
  }).filter(([ratio]) => ratio < 4.5);
}"""

STICKING_OUT = """() => {
  const clipped = (element) => element && (getComputedStyle(element).overflowX === "hidden"
    || clipped(element.parentElement));
  return [...document.querySelectorAll("body *")].filter((element) => {
    const card = element.closest(".card")?.getBoundingClientRect().right ?? innerWidth;
    const box = element.getBoundingClientRect();
    return box.width && box.right > Math.min(card, innerWidth) + 0.5 && !clipped(element.parentElement);
  }).map((element) => element.outerHTML.slice(0, 80));
}"""


def press(page: Page, key: str, *, shift: bool = False) -> None:
    """One key, down and up."""
    text = {"Enter": "\r", " ": " "}.get(key, "")
    pressed = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key], "modifiers": 8 if shift else 0}
    page.call("Input.dispatchKeyEvent", type="keyDown", text=text, **pressed)
    page.call("Input.dispatchKeyEvent", type="keyUp", **pressed)


def hover(page: Page, selector: str) -> None:
    """Move the mouse to the middle of an element; an empty selector is the corner of the window."""
    x, y = _middle(page, selector) if selector else (1, 1)
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)


def click(page: Page, selector: str) -> None:
    x, y = _middle(page, selector)
    for kind in ("mousePressed", "mouseReleased"):
        page.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)


def tap(page: Page, selector: str) -> None:
    """Touch the middle of an element with a finger."""
    x, y = _middle(page, selector)
    page.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
    page.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])


def note(page: Page) -> str:
    """The text of the floating note, empty while there is none."""
    text: str = page.evaluate("document.getElementById('tip').hidden ? '' : document.getElementById('tip').textContent")
    return text


def open_all(page: Page) -> None:
    """Open everything that can be opened."""
    shut = "[...document.querySelectorAll('details:not([open]) > summary')]"
    while page.evaluate(f"(() => {{ const shut = {shut}; shut.forEach((one) => one.click()); return shut.length }})()"):
        pass


def unreadable(page: Page) -> list[Any]:
    """Texts with a contrast below 4.5 to 1 to their ground (WCAG 2 AA), with the ratio."""
    found: list[Any] = page.evaluate(f"({UNREADABLE})()")
    return found


def sticking_out(page: Page) -> list[str]:
    """Elements that are wider than their card or the window."""
    found: list[str] = page.evaluate(f"({STICKING_OUT})()")
    return found


def _middle(page: Page, selector: str) -> tuple[float, float]:
    x, y = page.evaluate(
        "(() => {"
        f"  const element = document.querySelector({selector!r});"
        "  element.scrollIntoView({block: 'center'});"
        "  const box = element.getBoundingClientRect();"
        "  return [box.left + box.width / 2, box.top + box.height / 2];"
        "})()"
    )
    return x, y
