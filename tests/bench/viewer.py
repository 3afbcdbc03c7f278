"""Measure the viewer in a headless browser: ``make bench``; writes ``assets/bench_viewer.md``.

The scene is synthetic: a network of ten stages, a thousand layers and ``NODES`` nodes. Times are
medians of three runs on a page of 1180×720 in a software renderer. Beside the time until the first
picture stands the CPU time of the page's thread for it, which hardly depends on the load of the
machine; the line below the table has the CPU time of ``REFERENCE``, to compare machines.
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

from autogradviz.render.html_pages import (  # noqa: E402
    compress_script,
    read_global_script,
    read_style,
)
from autogradviz.render.widget import pack  # noqa: E402

NODES = (1_000, 10_000, 100_000)
RUNS = 3
RESULT = Path(__file__).parents[2] / "assets" / "bench_viewer.md"
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
OPS = ("relu", "tanh", "exp", "sigmoid", "cos")

REFERENCE = """() => {
  const seen = new Map();
  let sum = 0;
  for (let at = 0; at < 400000; at++) {
    seen.set("k" + (at % 5000), at);
    sum += JSON.parse("[" + at + "]")[0];
  }
  return sum + seen.size;
}"""

BYTES = "(packed) => { window.bytes = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0)); }"

FIRST_PICTURE = """async (mount) => {
  eval(mount)();
  const start = performance.now();
  const drawn = () => document.querySelector(".agv-fold-canvas, .agv-canvas[data-camera]");
  while (!drawn()) await new Promise((r) => setTimeout(r));
  await new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r)));
  return performance.now() - start;
}"""
"""A healthy step opens on its fold."""

OPEN_GRAPH = """async () => {
  document.querySelector(".agv-rail [data-view=graph]").click();
  const drawn = () => document.querySelector(".agv-canvas[data-camera]");
  while (!drawn()) await new Promise((r) => setTimeout(r));
}"""

MOVED_S = 3
FRAMES = """async () => {
  const canvas = document.querySelector(".agv-canvas");
  canvas.focus();
  canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "f", bubbles: true }));
  const at = { clientX: 560, clientY: 300, bubbles: true, cancelable: true };
  const start = performance.now();
  let frames = 0;
  const press = (type, x) =>
    canvas.dispatchEvent(
      new PointerEvent(type, { ...at, clientX: x, buttons: 1, pointerId: 1, isPrimary: true }),
    );
  canvas.setPointerCapture = () => {}; // no pointer exists that it could capture
  for (; performance.now() - start < MOVED_MS; frames++) {
    const turn = frames % 120;
    if (turn < 60) {
      canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: turn < 30 ? -40 : 40, ...at }));
    } else {
      if (turn === 60) press("pointerdown", 560);
      press("pointermove", 560 + 4 * (turn < 90 ? turn - 60 : 120 - turn));
      if (turn === 119) press("pointerup", 560);
    }
    await new Promise((r) => requestAnimationFrame(r));
  }
  return (1000 * frames) / (performance.now() - start);
}""".replace("MOVED_MS", str(1000 * MOVED_S))

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


def cpu_time(session):
    """Return the CPU time of the tasks of a page's thread, in milliseconds."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return 1000 * next(each["value"] for each in metrics if each["name"] == "TaskDuration")


def measure(browser, payload):
    """Return the medians of the times and frame rates of a payload in the browser.

    The last three are CPU times, of the first picture, of a frame and of the reference.
    """
    packed = base64.b64encode(payload).decode()
    taken = {FIRST_PICTURE: [], FRAMES: [], OPENING: []}
    spent = {FIRST_PICTURE: [], FRAMES: [], REFERENCE: []}
    mount = MOUNT.replace("Uint8Array.from(atob(packed), (c) => c.charCodeAt(0))", "window.bytes")
    for _ in range(RUNS):
        page = browser.new_page(viewport={"width": 1180, "height": 720})
        page.set_content("<!doctype html><body></body>")
        page.add_style_tag(content=read_style())
        page.add_script_tag(content=read_global_script())
        page.evaluate(BYTES, packed)  # a notebook host passes bytes
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        for script in (REFERENCE, *taken):
            if script is FRAMES:
                page.evaluate(OPEN_GRAPH)
            before = cpu_time(session)
            value = page.evaluate(script, mount)
            if script in taken:
                taken[script].append(value)
            if script in spent:
                count = value * MOVED_S if script is FRAMES else 1
                spent[script].append((cpu_time(session) - before) / count)
        page.close()
    return [statistics.median(values) for values in (*taken.values(), *spent.values())]


def main():
    """Measure and write the table."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    lines = [
        "| nodes | payload | first picture | of it CPU | pan and zoom | CPU of a frame"
        " | opening a group, at most |",
        "|---|---|---|---|---|---|---|",
    ]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu"]
        )
        for count in NODES:
            scene = make_net(count)
            payload = pack(scene)
            first, frames, opening, cpu, frame, reference = measure(browser, payload)
            size = f"{len(payload) / 1e6:.1f} MB"
            lines.append(
                f"| {len(scene.nodes):,} | {size} | {first:.0f} ms | {cpu:.0f} ms"
                f" | {frames:.0f} frames/s | {frame:.1f} ms | {opening:.0f} ms |"
            )
            if count == max(NODES):
                opened = tuple(dataclasses.replace(group, open=True) for group in scene.groups)
                opened_payload = pack(dataclasses.replace(scene, groups=opened))
                first, frames, _, cpu, frame, _ = measure(browser, opened_payload)
                lines.append(
                    f"| {len(scene.nodes):,}, all groups open | {size} | {first:.0f} ms"
                    f" | {cpu:.0f} ms | {frames:.0f} frames/s | {frame:.1f} ms | |"
                )
        browser.close()
    sent = (len(compress_script(read_global_script())) + len(read_style())) / 1e3
    measured = conditions.line(conditions.VIEWER)
    lines += [
        "",
        f"A report contains {sent:.0f} kB of script and style. The reference takes"
        f" {reference:.0f} ms of CPU time. {measured}",
    ]
    text = "\n".join(lines) + "\n"
    RESULT.write_text(text, encoding="utf-8")
    print(text)  # noqa: T201


if __name__ == "__main__":
    main()
