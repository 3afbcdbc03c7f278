"""The first pictures of well-known models in wide, narrow and very narrow viewers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from viewer_page import Stage

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from training_programs import PICTURES, checkpointed_transformer

RECORD_TEXTS = """() => {
  window.texts = [];
  const { fillRect, fillText } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.fillRect = function (x, y, ...size) {
    if (this.canvas.matches(".agv-canvas") && !x && !y) texts.length = 0; // a new picture
    fillRect.call(this, x, y, ...size);
  };
  CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
    if (this.canvas.matches(".agv-canvas")) {
      texts.push([text, parseFloat(this.font.match(/([\\d.]+)px/)[1]) * this.getTransform().a]);
    }
    fillText.call(this, text, ...rest);
  };
}"""


PICTURES = {**PICTURES, "checkpointed": checkpointed_transformer}


@pytest.mark.one_in(6, reason="draws each picture at every width", in_ci=3)
@pytest.mark.parametrize("name", sorted(PICTURES))
def test_first_picture_is_readable_at_every_width(open_page, picture, name):
    page = open_page(viewport={"width": 1000, "height": 760})
    stage = Stage(page, PICTURES[name]()._scene)
    page.evaluate(RECORD_TEXTS)
    for width, height in ((1280, 760), (680, 620), (360, 620))[
        : 2 if name == "checkpointed" else 3
    ]:
        page.set_viewport_size({"width": width, "height": height})
        stage.settle()
        page.screenshot(path=picture(f"first-{name}-{width}-light"))
        canvas = page.locator(".agv-canvas").first
        x, y, scale = map(float, canvas.get_attribute("data-camera").split())
        view = canvas.bounding_box()
        boxes = canvas.evaluate("canvas => canvas.drawn")
        assert min((box["x"] - x) * scale for box in boxes) >= 0
        assert max((box["x"] + box["width"] - x) * scale for box in boxes) <= view["width"]
        texts = page.evaluate("texts")
        assert min(size for _, size in texts) >= 9.49
        assert [text for text, _ in texts if "…" in text and "Back" in text] == []
        closed = [
            box
            for box in boxes
            if box["kind"] == "group" and 0 < (box["y"] - y) * scale < view["height"]
        ]
        ends = (" saved", " recomputed", " shared")
        assert sum(text.endswith(ends) for text, _ in texts) >= len(closed)
