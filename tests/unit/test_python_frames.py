"""The reader of Python stacks in C++: by the private layout of frames, and by public functions."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import sysconfig
import threading
from pathlib import Path

import pytest

import autogradviz

pytestmark = pytest.mark.skipif(
    shutil.which("g++") is None or sys.platform != "linux", reason="needs g++ on Linux"
)

NATIVE = Path(autogradviz.__file__).parent / "recorder" / "native"

SOURCE = """
#include "python_frames.h"

#include <utility>
#include <vector>

// Both without the GIL: whether the thread runs Python, and its stack.
static PyObject* stack(PyObject*, PyObject*) {
  std::vector<std::pair<PyCodeObject*, int>> found;
  bool runs;
  Py_BEGIN_ALLOW_THREADS
  runs = agv::runs_python_code();
  {
    agv::FrameAccess access;
    agv::Frame* frame = agv::innermost_frame();
    for (; frame != nullptr; frame = agv::caller_of(frame)) {
      if (!agv::is_visible(frame)) continue;
      agv::Place place = agv::place_of(frame);
      found.emplace_back(place.code, place.offset);
    }
  }
  Py_END_ALLOW_THREADS
  PyObject* places = PyList_New(0);
  for (auto [code, offset] : found) {
    PyObject* place = Py_BuildValue("Oi", code, offset);
    PyList_Append(places, place);
    Py_DECREF(place);
  }
  return Py_BuildValue("NN", PyBool_FromLong(runs), places);
}

static PyMethodDef functions[] = {
    {"stack", stack, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, MODULE_NAME, nullptr, -1, functions, nullptr, nullptr, nullptr, nullptr};

PyMODINIT_FUNC INIT() {
  return PyModule_Create(&definition);
}
"""


@pytest.fixture(scope="module", params=["private", "public"])
def stack(request, tmp_path_factory):
    """Return a function in C++ that reads the stack of its caller."""
    if request.param == "private" and sys.version_info >= (3, 14):
        pytest.skip("the layout of frames is unknown")
    if request.param == "public" and sys.version_info < (3, 11):
        pytest.skip("there is no public function for the position in a frame")
    name, folder = f"{request.param}_frames", tmp_path_factory.mktemp("frames")
    (folder / "module.cpp").write_text(SOURCE)
    options = [f'-DMODULE_NAME="{name}"', f"-DINIT=PyInit_{name}"]
    if request.param == "public":
        options.append("-DAUTOGRADVIZ_PUBLIC_FRAMES")
    subprocess.run(
        ["g++", "-O1", "-std=c++20", "-fPIC", "-shared", *options, f"-I{NATIVE}",
         f"-I{sysconfig.get_path('include')}", folder / "module.cpp", "-o", folder / "module.so"],
        check=True,
    )  # fmt: skip
    spec = importlib.util.spec_from_file_location(name, folder / "module.so")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.stack


def python_stack():
    frame, found = sys._getframe(1), []
    while frame is not None:
        found.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return found


def lines(places):
    """Return code and line of each place."""
    found = []
    for code, offset in places:
        spans = ((line, begin, end) for begin, end, line in code.co_lines())
        found.append((code, next(line for line, begin, end in spans if begin <= offset < end)))
    return found


def test_stack_is_that_of_python(stack):
    def recurse(depth):
        if depth:
            return recurse(depth - 1)
        return stack(), python_stack()

    (runs, places), expected = recurse(20)
    assert runs
    assert lines(places) == expected


def test_stack_of_a_generator_in_another_thread(stack):
    found = []

    def generate():
        yield stack(), python_stack()

    thread = threading.Thread(target=lambda: found.extend(generate()))
    thread.start()
    thread.join()
    ((_, places), expected) = found[0]
    assert lines(places) == expected
    assert len(expected) > 3


def test_reading_keeps_no_code_alive(stack):
    def local():
        return stack()

    counts = []
    for _ in range(3):
        local()
        counts.append(sys.getrefcount(local.__code__))
    assert counts[0] == counts[1] == counts[2]
