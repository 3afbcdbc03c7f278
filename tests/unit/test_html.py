"""The HTML report: one file, no requests, escaped names."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import zlib
from html.parser import HTMLParser

import pytest
from make_scene import scene_of, tower, unpack
from small_scene import small_scene

from autogradviz.render.html_pages import decompress_script, read_global_script, render_html
from autogradviz.scene.payload import pack, to_payload
from autogradviz.scene.schema import SceneHeldSave

HOSTILE = "</script><script>hacked()</script><!--&amp;\"'\u202e\U0001f600"


class Page(HTMLParser):
    """The elements of a page: tag, attributes and text."""

    def __init__(self, text):
        super().__init__()
        self.elements = []
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), ""))
        self.inside = True

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            tag, attrs, text = self.elements[-1]
            self.elements[-1] = (tag, attrs, text + data)

    def all(self, tag):
        return [(attrs, text) for name, attrs, text in self.elements if name == tag]


def payload_of(text):
    """Return the type and the text of the payload's element."""
    scripts = Page(text).all("script")
    return next((attrs["type"], text) for attrs, text in scripts if "id" in attrs)


def test_page_contains_the_complete_payload():
    scene = small_scene(name=HOSTILE)
    whole = json.loads(json.dumps(to_payload(scene)))
    kind, packed = payload_of(render_html(scene))
    assert kind == "application/zlib"
    assert unpack(base64.b64decode(packed)) == whole
    kind, plain = payload_of(render_html(scene, compress=False))
    assert kind == "application/json"
    assert json.loads(plain) == whole


def test_hostile_name_adds_no_element():
    scene = small_scene(name=HOSTILE, title=HOSTILE)
    tags = [tag for tag, _, _ in Page(render_html(scene, title=HOSTILE)).elements]
    assert tags == [tag for tag, _, _ in Page(render_html(small_scene())).elements]
    assert Page(render_html(scene)).all("title") == [({}, HOSTILE)]


@pytest.mark.parametrize("compress", [True, False])
def test_content_security_policy_allows_only_the_scripts_of_the_page(compress):
    page = Page(render_html(small_scene(), compress=compress))
    policy = next(attrs["content"] for attrs, _ in page.all("meta") if "http-equiv" in attrs)
    scripts = [text for attrs, text in page.all("script") if not attrs]
    if compress:
        code = next(text for attrs, text in page.all("script") if attrs.get("id") == "script")
        scripts.append(decompress_script(code))
    assert read_global_script() in scripts[-1]
    digests = [hashlib.sha256(script.encode()).digest() for script in scripts]
    allowed = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    assert policy == (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "worker-src blob:; base-uri 'none'; form-action 'none'"
    )


def test_page_has_no_external_address():
    page = Page(render_html(small_scene()))
    named = [
        (tag, key) for tag, attrs, _ in page.elements for key in attrs if key in {"src", "href"}
    ]
    assert named == []


def test_title_is_the_title_of_the_scene_by_default():
    assert Page(render_html(small_scene())).all("title") == [({}, "Small")]
    assert Page(render_html(small_scene(), title="Step 3")).all("title") == [({}, "Step 3")]


def test_page_without_scripts_has_a_message():
    page = Page(render_html(small_scene()))
    assert "requires JavaScript" in "".join(text for _, text in page.all("p"))


def test_packed_columns_of_large_numbers_hold_differences():
    """The times of nodes ascend, and so do the lists of the times of their runs."""
    scene = scene_of(*tower(8))
    nodes = [
        dataclasses.replace(node, born_ns=10**9 + 7 * i, runs_ns=(10**9 + 9 * i, -1)[: i % 3])
        for i, node in enumerate(scene.nodes)
    ]
    scene = dataclasses.replace(scene, nodes=tuple(nodes))
    columns = json.loads(zlib.decompress(pack(scene)))["nodes"]
    assert columns["born_ns"] == 'd{"runs":[1000000000,1,7,25]}'
    assert columns["op"].startswith("[")
    assert unpack(pack(scene)) == json.loads(json.dumps(to_payload(scene)))


def test_large_tables_of_the_memory_view_are_packed_by_themselves():
    """They are as many bytes as the rest, and are decoded when the view is shown."""
    scene = scene_of(*tower(8))
    row = SceneHeldSave(storage=0, call=-1, created_in=-1, start_seq=1, end_seq=2, used_seqs=())
    many = dataclasses.replace(scene, held_saves=(row,) * 3_000)
    plain = json.loads(zlib.decompress(pack(many)))
    assert "held_saves" not in plain
    assert "later" not in json.loads(zlib.decompress(pack(scene)))
    assert unpack(pack(many)) == json.loads(json.dumps(to_payload(many)))


def test_columns_of_groups_are_packed_by_row():
    scene = scene_of(*tower(8))
    column = json.loads(zlib.decompress(pack(scene)))["groups"]["cells_ref"]
    rows = [json.loads(row) for row in column.removeprefix("r").split(";")]
    assert rows == [[cell.ref for cell in group.cells] for group in scene.groups]
