"""The checked-in bundle is up to date, and its source passes the checks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from autogradviz.render import html_pages
from autogradviz.render.html_pages import (
    _INFLATE,
    EXPORT,
    compress_module,
    compress_script,
    decompress_script,
    read_global_run_script,
    read_global_script,
    read_run_script,
    read_run_style,
    read_script,
    read_style,
)

ROOT = Path(__file__).parents[2]
ASSETS = ROOT / "assets"
STATIC = ROOT / "autogradviz" / "render" / "static"
MOST_BYTES = 383_000
"""Browsers compile the script; style sheets are 40 kB of it."""
MOST_BYTES_SENT = 179_700
"""Each report and each widget contains script and style; the style sheet is 14 kB of it."""
MOST_RUN_BYTES = 33_000
"""Only runs have it."""


@pytest.fixture(scope="module")
def node():
    program = shutil.which("node")
    if program and (ASSETS / "node_modules" / "esbuild").exists():
        return program
    reason = "the viewer's tools are missing: run `npm install` in assets/"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    warnings.warn(f"the viewer was not rebuilt: {reason}", stacklevel=2)
    pytest.skip(reason)


def run(*command):
    done = subprocess.run(command, cwd=ASSETS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def inflated(node, code):
    """Return the script that a page reads from a compressed one."""
    program = (
        f"{_INFLATE} const {{ readFileSync }} = require('node:fs'); "
        "inflate(readFileSync(0, 'utf8')).then((text) => process.stdout.write(text));"
    )
    done = subprocess.run(
        [node, "-e", program], input=code, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_bundle_is_up_to_date_with_its_source(node, tmp_path):
    run(node, "build.mjs", str(tmp_path))
    for name in ("viewer.js", "viewer.css", "live.js", "live.css", "run.js", "run.css"):
        assert (tmp_path / name).read_bytes() == (STATIC / name).read_bytes()


def test_pages_contain_the_viewer_as_the_build_compressed_it(node):
    code = compress_script(f"{read_global_script()} // mounted")
    viewer, mount = code.split(" ")
    assert viewer == (STATIC / "viewer_compressed.txt").read_text(encoding="utf-8").strip()
    assert inflated(node, code) == f"{read_global_script()} // mounted"
    assert len(viewer) < 0.98 * len(compress_script(f" {read_global_script()}"))
    assert len(mount) < 40


def test_a_compressed_viewer_of_an_older_build_is_not_used(monkeypatch):
    monkeypatch.setattr(html_pages, "read_global_script", lambda: "newer();")
    html_pages.compress_script.cache_clear()
    html_pages._code_of_build.cache_clear()
    code = compress_script("newer(); mounted();")
    html_pages.compress_script.cache_clear()
    html_pages._code_of_build.cache_clear()
    assert " " not in code
    assert decompress_script(code) == "newer(); mounted();"


@pytest.mark.slow(reason="make lint runs the same two programs")
def test_source_is_type_correct_and_formatted(node):
    run(str(ASSETS / "node_modules" / ".bin" / "tsc"), "--project", "viewer")
    run(str(ASSETS / "node_modules" / ".bin" / "prettier"), "--check", "viewer", "build.mjs")


def test_types_equal_the_schema(tmp_path):
    target = tmp_path / "types.js"
    generator = ASSETS / "generate_types.py"
    schema = ROOT / "autogradviz" / "scene" / "schema.py"
    subprocess.run([sys.executable, generator, schema, target], check=True)
    checked_in = (ASSETS / "viewer" / "types.js").read_text(encoding="utf-8")
    assert target.read_text(encoding="utf-8") == checked_in


def test_viewer_unit_tests_pass(node):
    run(node, "--test", *map(str, sorted((ROOT / "tests" / "viewer").glob("*.test.mjs"))))


def test_bundle_is_small_and_makes_no_requests():
    script = read_script() + read_global_run_script()
    assert len(read_script().encode()) < MOST_BYTES
    assert len((compress_module(read_script()) + read_style()).encode()) < MOST_BYTES_SENT
    assert len(read_global_run_script().encode()) < MOST_RUN_BYTES
    foreign = [
        word for word in ("https://", "fetch(", "XMLHttpRequest", "import(") if word in script
    ]
    assert foreign == []
    assert "http" not in read_style() + read_run_style()
    assert "url(" not in read_style() + read_run_style()


def test_bundle_is_a_module_and_a_plain_script():
    assert read_script().rstrip() == read_global_script() + EXPORT
    assert read_run_script().startswith(read_global_script())
    assert read_run_script().endswith("export default autogradvizRun.default;\n")


ALONE = """
const { readFileSync } = require("node:fs");
const { createContext, runInContext } = require("node:vm");
const bare = createContext({}); // no document, no window, no require, no Jupyter
runInContext(readFileSync(0, "utf8"), bare);
console.log(runInContext("typeof autogradviz.default.render", bare));
"""


def test_module_loads_without_a_host(node):
    """Colab, VS Code and marimo have their own pages, without Jupyter."""
    done = subprocess.run(
        [node, "-e", ALONE], input=read_global_script(), capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "function", done.stderr
    words = (
        "require(",
        "requirejs",
        "define.amd",
        "jupyterapp",
        "google.colab",
        "acquireVsCodeApi",
    )
    assert [word for word in words if word in read_script()] == []


@pytest.mark.parametrize("text", ["", "a", "ab", "abc", "abcd", "x = '<!-- </script>'\n" * 99])
def test_compressed_script_is_read_back_and_ends_no_element(node, text):
    code = compress_script(text)
    assert not any(end in code.lower() for end in ("</", "<!--", "<script", '"', "\\"))
    assert inflated(node, code) == text
