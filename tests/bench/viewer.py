"""Measure the viewer in a headless browser: ``make bench``; writes ``assets/bench_viewer.md``.

The scene is synthetic: a network of ten stages, a thousand layers and ``NODES`` nodes. Times are
medians of three runs on a page of 1180×720 in a software renderer.
"""

from __future__ import annotations

import base64
import dataclasses
import shutil
import statistics
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("unit", "browser")]

import conditions  # noqa: E402
from make_scene import Box, scene_of  # noqa: E402
from playwright.sync_api import sync_playwright  # noqa: E402
from viewer_page import MOUNT  # noqa: E402

from autogradviz.render.assets import read_global_script, read_style  # noqa: E402
from autogradviz.render.compressed_script import compress_script  # noqa: E402
from autogradviz.render.widget import pack  # noqa: E402

NODES = (1_000, 10_000, 100_000)
RUNS = 3
RESULT = Path(__file__).parents[2] / "assets" / "bench_viewer.md"
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
OPS = ("relu", "tanh", "exp", "sigmoid", "cos")

FIRST_PICTURE = """async (mount) => {
  eval(mount)(window.packed); // converts text to bytes; a notebook host passes bytes directly
  const start = performance.now();
  const drawn = () => document.querySelector(".agv-canvas[data-camera]");
  while (!drawn()) await new Promise((r) => setTimeout(r));
  await new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r)));
  return performance.now() - start;
}"""

FRAMES = """async () => {
  const canvas = document.querySelector(".agv-canvas");
  canvas.focus();
  canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "f", bubbles: true }));
  const at = { clientX: 560, clientY: 300, bubbles: true, cancelable: true };
  const start = performance.now();
  let frames = 0;
  for (; performance.now() - start < 1500; frames++) {
    canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: frames % 40 < 20 ? -40 : 40, ...at }));
    await new Promise((r) => requestAnimationFrame(r));
  }
  return (1000 * frames) / (performance.now() - start);
}"""

OPENING = """async () => {
  let longest = 0;
  for (let turn = 0; turn < 6; turn++) {
    const closed = document.querySelectorAll("[role=treeitem][aria-expanded=false] .agv-expander");
    if (!closed.length) break;
    const start = performance.now();
    closed[turn % closed.length].click();
    await new Promise((r) => requestAnimationFrame(r));
    longest = Math.max(longest, performance.now() - start);
  }
  return longest;
}"""


def make_net(count):
    """Return a scene with approximately ``count`` nodes."""
    boxes = [Box(1, "exp")]
    for layer in range(count // 100):
        module = f"net.stage{layer % 10}.layer{layer}"
        for i in range(97 if layer % 7 else 91):
            number = len(boxes) + 1
            to = [number - 1] + ([number - 5] if i % 9 == 8 else [])
            part = f"{module}.part{i // 20}"
            leaves = [f"{part}.w{i}"] if i % 10 == 0 else []
            op = OPS[(i * layer + i) % 5] if i % 3 else "mm"
            boxes.append(Box(number, op, to=to, module=part, saves=["self"], leaves=leaves))
    return scene_of(*boxes)


def measure(browser, scene):
    """Return the medians of the times and frame rates of a scene in the browser."""
    packed = base64.b64encode(pack(scene)).decode()
    taken = {FIRST_PICTURE: [], FRAMES: [], OPENING: []}
    for _ in range(RUNS):
        page = browser.new_page(viewport={"width": 1180, "height": 720})
        page.set_content("<!doctype html><body></body>")
        page.add_style_tag(content=read_style())
        page.add_script_tag(content=read_global_script())
        page.evaluate("(packed) => { window.packed = packed; }", packed)
        for script, values in taken.items():
            values.append(
                page.evaluate(script, MOUNT) if script is FIRST_PICTURE else page.evaluate(script)
            )
        page.close()
    return [statistics.median(values) for values in taken.values()]


def main():
    """Measure and write the table."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    lines = [
        "| nodes | payload | first picture | pan and zoom | opening a group, at most |",
        "|---|---|---|---|---|",
    ]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu"]
        )
        for count in NODES:
            scene = make_net(count)
            first, frames, opening = measure(browser, scene)
            size = len(pack(scene)) / 1e6
            lines.append(
                f"| {len(scene.nodes):,} | {size:.1f} MB | {first:.0f} ms | {frames:.0f} frames/s"
                f" | {opening:.0f} ms |"
            )
            if count == max(NODES):
                opened = tuple(dataclasses.replace(group, open=True) for group in scene.groups)
                first, frames, _ = measure(browser, dataclasses.replace(scene, groups=opened))
                lines.append(
                    f"| {len(scene.nodes):,}, all groups open | {size:.1f} MB | {first:.0f} ms"
                    f" | {frames:.0f} frames/s | |"
                )
        browser.close()
    sent = (len(compress_script(read_global_script())) + len(read_style())) / 1e3
    measured = conditions.line(conditions.VIEWER)
    lines += ["", f"A report contains {sent:.0f} kB of script and style. {measured}"]
    text = "\n".join(lines) + "\n"
    RESULT.write_text(text, encoding="utf-8")
    print(text)  # noqa: T201


if __name__ == "__main__":
    main()
