"""What makes a page hard to read, asked in the browser."""

from io import BytesIO

from PIL import Image

from tests.pages.browser import Browser

MIN_CONTRAST = 4.5
"""WCAG 2.2, 1.4.3, for text of ordinary size."""
DEFICIENCIES = ("none", "protanopia", "deuteranopia", "tritanopia", "achromatopsia")
Color = tuple[int, ...]

_VISIBLE_TEXTS = """
[...document.querySelectorAll("body *")].filter((one) =>
  !["SCRIPT", "STYLE", "OPTION", "NOSCRIPT"].includes(one.tagName) && one.getClientRects().length &&
  [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim()))
"""
_FAINT = """(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const over = (top, below, opacity) => below.map((value, at) => value + (top[at] - value) * opacity * (top[3] / 255)).slice(0, 3);
  const luminance = (color) => color.map((value) => value / 255)
    .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4))
    .reduce((sum, value, at) => sum + value * [0.2126, 0.7152, 0.0722][at], 0);
  return TEXTS.map((one) => {
    const chain = [];
    for (let up = one; up; up = up.parentElement) chain.unshift(up);
    let below = [255, 255, 255], opacity = 1;
    for (const up of chain) {
      opacity *= getComputedStyle(up).opacity;
      below = over(rgba(getComputedStyle(up).backgroundColor), below, opacity);
    }
    const style = getComputedStyle(one);
    const front = over(rgba(one instanceof SVGElement ? style.fill : style.color), below, opacity);
    const [dark, light] = [luminance(front), luminance(below)].sort((a, b) => a - b);
    return [one.textContent.trim(), (light + 0.05) / (dark + 0.05)];
  }).filter(([, contrast]) => contrast < LEAST);
})()"""
_CUT = """TEXTS.filter((one) => getComputedStyle(one).overflow === "hidden" && one.scrollWidth > one.clientWidth + 1)
  .map((one) => one.textContent.trim())"""
_SMALL = (
    """TEXTS.filter((one) => parseFloat(getComputedStyle(one).fontSize) < 11).map((one) => one.textContent.trim())"""
)


def faults(browser: Browser) -> dict[str, object]:
    """What is wrong, by kind: how much wider the page is than the window, and texts faint, cut off or small."""
    found = {
        "wider": browser.ask("document.documentElement.scrollWidth - document.documentElement.clientWidth"),
        "faint": browser.ask(_FAINT.replace("TEXTS", f"({_VISIBLE_TEXTS})").replace("LEAST", str(MIN_CONTRAST))),
        "cut": browser.ask(_CUT.replace("TEXTS", f"({_VISIBLE_TEXTS})")),
        "small": browser.ask(_SMALL.replace("TEXTS", f"({_VISIBLE_TEXTS})")),
    }
    return {kind: fault for kind, fault in found.items() if fault}


def seen_as(browser: Browser, selector: str, deficiency: str) -> Color:
    """RGB of the pixel two from the left edge of an element, half way down, to somebody with that vision."""
    x, y = browser.ask(
        f"(({{ left, top, height }}) => [left + scrollX + 2, top + scrollY + height / 2])"
        f"(document.querySelector({selector!r}).getBoundingClientRect())"
    )
    browser.call("Emulation.setEmulatedVisionDeficiency", type=deficiency)
    image = Image.open(BytesIO(browser.screenshot())).convert("RGB")
    browser.call("Emulation.setEmulatedVisionDeficiency", type="none")
    color: Color = image.getpixel((int(x), int(y)))
    return color


def distance(one: Color, other: Color) -> float:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) ** 0.5
