"""Building engines from wheels that are not downloaded, and checking what they need."""

from __future__ import annotations

import base64
import hashlib
import http.server
import io
import sys
import sysconfig
import threading
import zipfile
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parents[2] / "release")]

import build_engines  # noqa: E402
import check_symbols  # noqa: E402
import elf_symbols  # noqa: E402
import torch_headers  # noqa: E402
import wheel_over_http  # noqa: E402

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads ELF files")


def hashed(content):
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


def a_wheel(record=None):
    """Return the bytes of a wheel with one header and four megabytes of something else."""
    header = b"#pragma once\n"
    path = "torch/include/c10/a.h"
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("torch/lib/large.so", bytes(4 << 20))
        archive.writestr(path, header)
        lines = f"{path},sha256={record or hashed(header)},13\ntorch-1.dist-info/RECORD,,\n"
        archive.writestr("torch-1.dist-info/RECORD", lines)
    return file.getvalue()


@pytest.fixture
def served():
    """Serve bytes on this machine, by ranges; count the bytes that were sent."""
    content, sent = {}, []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = content["body"]
            first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
            part = body[int(first) : int(last) + 1]
            sent.append(len(part))
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(body)}")
            self.send_header("Content-Length", str(len(part)))
            self.end_headers()
            self.wfile.write(part)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield content, sent, f"http://127.0.0.1:{server.server_port}/torch.whl"
        server.shutdown()
        thread.join()


def test_headers_are_read_without_the_rest_of_a_wheel(served, tmp_path):
    content, sent, url = served
    content["body"] = a_wheel()
    with wheel_over_http.open_wheel(url) as wheel:
        hashes = torch_headers.recorded_hashes(wheel.read("torch-1.dist-info/RECORD").decode())
        torch_headers._store(
            wheel, "torch/include/c10/a.h", hashes["torch/include/c10/a.h"], tmp_path
        )
    assert [path.read_bytes() for path in (tmp_path / "headers").iterdir()] == [b"#pragma once\n"]
    assert sum(sent) < len(content["body"]) / 2


def test_header_that_differs_from_the_record_is_refused(tmp_path):
    with zipfile.ZipFile(io.BytesIO(a_wheel("x" * 43))) as wheel:
        with pytest.raises(ValueError, match="RECORD"):
            torch_headers._store(wheel, "torch/include/c10/a.h", "x" * 43, tmp_path)
    assert not (tmp_path / "headers").exists()


@LINUX
def test_symbols_of_a_library_and_their_versions():
    import _ctypes

    if not hasattr(_ctypes, "__file__"):
        pytest.skip("this Python has no extension modules as files")
    found = elf_symbols.symbols(Path(_ctypes.__file__).read_bytes())
    assert "PyInit__ctypes" in {each.name for each in found if each.defined}
    needed = {each.name: each.version for each in found if not each.defined}
    assert needed["PyErr_SetString"] is None
    assert any((version or "").startswith("GLIBC_") for version in needed.values())


def test_what_an_engine_lacks_is_named(monkeypatch):
    needed = [
        elf_symbols.Symbol("PyErr_SetString", defined=False, weak=False, version=None),
        elf_symbols.Symbol("Py_Gone", defined=False, weak=False, version=None),
        elf_symbols.Symbol("of_torch", defined=False, weak=False, version=None),
        elf_symbols.Symbol("of_nobody", defined=False, weak=False, version=None),
        elf_symbols.Symbol("memcpy", defined=False, weak=False, version="GLIBC_2.14"),
        elf_symbols.Symbol("new", defined=False, weak=False, version="GLIBC_2.34"),
    ]
    monkeypatch.setattr(check_symbols, "_needed", lambda _: needed)
    with pytest.raises(SystemExit) as stopped:
        check_symbols.check(Path("engine.so"), {"of_torch"}, sys.executable)
    assert str(stopped.value) == (
        f"engine.so: GLIBC_2.34 is too new; Py_Gone is not in {sys.executable}; "
        "of_nobody is in no library"
    )
    assert check_symbols.needed_from_torch(Path("engine.so"), {"of_torch"}) == ["of_torch"]


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (None, None),
        ("GLIBC_2.28", None),
        ("GLIBC_2.34", "GLIBC_2.34 is too new"),
        ("GLIBCXX_3.4.30", "GLIBCXX_3.4.30 is too new"),
        ("CXXABI_1.3.9", None),
        ("OTHER_9", None),
    ],
)
def test_versions_that_the_tag_of_the_wheel_allows(version, expected):
    assert check_symbols.too_new(version) == expected


def an_engine():
    return {
        "python": "cpython-311-x86_64-linux-gnu",
        "torch": ["2.14.0"],
        "torch_revisions": ["a"],
        "headers": {"c10/a.h": "1"},
        "symbols": ["s"],
    }


@pytest.mark.parametrize(
    ("headers", "symbols", "shared"),
    [
        ({"c10/a.h": "1", "c10/unused.h": "9"}, ["s", "t"], True),
        ({"c10/a.h": "2"}, ["s"], False),
        ({"c10/a.h": "1"}, [], False),
    ],
)
def test_releases_with_the_same_headers_and_symbols_share_an_engine(headers, symbols, shared):
    engines = [an_engine()]
    wheel = torch_headers.TorchWheel("2.14.1", "3.11", "b", headers, symbols)
    assert build_engines.add_release(engines, wheel, engines[0]["python"]) is shared
    assert engines[0]["torch_revisions"] == (["a", "b"] if shared else ["a"])
    assert not build_engines.add_release([an_engine()], wheel, "cpython-312-x86_64-linux-gnu")


def test_interpreters_have_headers_and_one_of_each_version_is_used():
    found = list(build_engines.interpreters(["no-such-python", sys.executable, sys.executable]))
    has_headers = (Path(sysconfig.get_path("include")) / "Python.h").exists()
    assert len(found) == (1 if has_headers else 0)


def test_headers_that_a_compiler_read():
    listed = "engine.so: /a/module.cpp /w/include/c10/b.h \\\n /w/include/ATen/a.h /usr/x.h\n"
    assert build_engines._used_headers(listed, Path("/w/include")) == ["ATen/a.h", "c10/b.h"]


def test_supported_release_without_an_engine_is_named():
    engines = [{"torch": ["2.14.1", "2.14.0"]}, {"torch": ["2.13.0"]}]
    assert build_engines.without_engine(("2.13", "2.14", "2.15"), engines) == ["2.15"]
