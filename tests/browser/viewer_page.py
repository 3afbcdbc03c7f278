"""Mount the viewer in an empty page, with a model that stores its traits."""

from __future__ import annotations

import base64
import mimetypes
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from autogradviz.render.html_pages import read_global_script, read_style
from autogradviz.render.widget import pack

if TYPE_CHECKING:
    from autogradviz.scene.schema import Scene

SOURCES = Path(__file__).parents[2] / "assets" / "viewer"

MOUNT = """
(packed) => {
  const bytes = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
  const listeners = {};
  const traits = { _payload: new DataView(bytes.buffer), height: innerHeight - 20 };
  window.traits = traits;
  window.saves = 0;
  window.model = {
    get: (name) => traits[name],
    set: (name, value) => { traits[name] = value; },
    save_changes: () => { saves += 1; },
    on: (name, callback) => { (listeners[name] ??= new Set()).add(callback); },
    off: (name, callback) => { listeners[name].delete(callback); },
  };
  window.listeners = listeners;
  window.change = (name, value) => {
    traits[name] = value;
    (listeners[`change:${name}`] ?? []).forEach((callback) => callback());
  };
  window.unmount = autogradviz.default.render({ model, el: document.body });
}
"""


class Stage:
    """One mounted viewer."""

    def __init__(self, page, scene: Scene, *, view="graph"):
        """Mount a scene, and show a view; "" leaves that on which it opens."""
        self.page = page
        self.scene = scene
        page.set_content("<!doctype html><body style='margin:8px'></body>")
        page.add_style_tag(content=read_style())
        page.add_script_tag(content=read_global_script())
        page.evaluate(MOUNT, base64.b64encode(pack(scene)).decode())
        page.wait_for_selector(".agv-shell")
        opens_on = page.get_attribute(".agv", "data-view")
        if (
            scene.ribbons
            and view
            and opens_on in {"fold", "graph", "findings", "checkpoint"} - {view}
        ):
            self.show(view)
        if scene.nodes and page.locator(".agv-pane-graph:not([hidden])").count():
            page.wait_for_selector(".agv-canvas[data-camera]")

    def point_of(self, kind, ref, opened):
        """Return the page coordinates of the chevron of a group or the center of a node."""
        return point_of(self.page, self.scene, kind, ref, opened)

    def click(self, kind, ref, opened):
        self.page.mouse.click(*self.point_of(kind, ref, opened))
        self.settle()

    def settle(self):
        """Wait for two frames, after which all changes are drawn."""
        self.page.evaluate(
            "new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r)))"
        )

    def resize(self, size):
        """Change the size of the page, and wait until it is drawn."""
        self.page.set_viewport_size(size)
        self.page.wait_for_function("(width) => innerWidth === width", arg=size["width"])
        self.settle()  # observers of sizes are called in the next frame
        self.settle()

    def selected(self):
        return self.page.evaluate("traits.selected ?? null")

    def tree(self):
        labels = self.page.query_selector_all("[role=treeitem] .agv-row-label")
        return [label.text_content() for label in labels]

    def show(self, view):
        show_view(self.page, view)

    def views(self):
        return views_of(self.page)


def collect_texts(page):
    """Collect the texts that canvases show from now on, with their places, in ``window.texts``."""
    page.evaluate(
        """window.texts = [];
        const fill = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...room) {
          const at = this.getTransform().transformPoint({ x, y });
          const scale = devicePixelRatio;
          window.texts.push({ text, x: at.x / scale, y: at.y / scale });
          return fill.call(this, text, x, y, ...room);
        };
        null"""
    )


def show_view(page, view):
    """Show a view; those that are parts of the page of the step are behind its button."""
    own = f".agv-rail [data-view={view}]"
    page.wait_for_selector(".agv-rail")
    if not page.locator(own).count():
        page.click(".agv-rail [data-view=fold]")
        own = f".agv-parts [data-view={view}]"
    page.click(own)


def views_of(page):
    """Return the names of the views that the rail and the page of the step list."""
    page.wait_for_selector(".agv-rail [data-view]")
    buttons = page.locator(":is(.agv-rail, .agv-parts) [data-view]")
    return list(dict.fromkeys(buttons.evaluate_all("all => all.map((b) => b.dataset.view)")))


def first_open(scene):
    """Return the groups that are open in the first picture."""
    return {group.index for group in scene.groups if group.open or not group.index}


def closed_groups(scene, opened):
    """Return the closed groups that are visible, in the order of the outline."""
    return [
        cell.ref
        for index in sorted(opened)
        for cell in scene.groups[index].cells
        if cell.kind == "group" and cell.ref not in opened
    ]


def point_of(page, scene, kind, ref, opened):
    """Return the page coordinates of the chevron of a group or the center of a node."""
    if kind != "node":  # an open group has a frame
        kind = "frame" if ref in (opened or ()) else "group"
    canvas = page.locator(".agv-canvas").first
    boxes = canvas.evaluate("canvas => canvas.drawn")
    box = next(SimpleNamespace(**b) for b in boxes if b["kind"] == kind and b["ref"] == ref)
    x, y, scale = map(float, canvas.get_attribute("data-camera").split())
    corner = canvas.bounding_box()
    inside_x = box.width / 2 if kind == "node" else 16
    inside_y = 15 if kind == "frame" else box.height / 2
    return (
        corner["x"] + (box.x + inside_x - x) * scale,
        corner["y"] + (box.y + inside_y - y) * scale,
    )


def serve_sources(page):
    """Serve the modules of the viewer from ``http://viewer.test/`` to a page."""

    def answer(route):
        path = SOURCES / route.request.url.removeprefix("http://viewer.test/")
        if not path.is_file():
            route.fulfill(
                content_type="text/html", body="<!doctype html><link rel=icon href=data:,>"
            )
            return
        kind = mimetypes.guess_type(path.name)[0] or "text/javascript"
        route.fulfill(content_type=kind, body=path.read_text(encoding="utf-8"))

    page.route("http://viewer.test/**", answer)
    page.goto("http://viewer.test/")
