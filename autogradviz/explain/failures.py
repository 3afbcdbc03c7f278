"""Pages on autogradviz's own errors."""

from __future__ import annotations

from typing import Final

from autogradviz.explain.page import Page

PAGES: Final = (
    Page(
        slug="autogradviz-error",
        title="A command could not do what was asked",
        means="""The class of all errors of autogradviz; by itself it says that a command was given
        something that it cannot do.""",
        happens="""A picture is to be written over its own trace, for instance.""",
        fix="""The message says what to give instead.""",
        example="""
from autogradviz.errors import AutogradvizError

raise AutogradvizError("x.agv is the trace itself; name another file with -o")
""",
    ),
    Page(
        slug="already-recording",
        title="A recording is open already",
        means="""PyTorch's state is one for the whole process, so one recording can be open.""",
        happens="""record() inside of record(), or in two threads at once.""",
        fix="""Leave the first block before entering the second.""",
        example="""
import autogradviz

with autogradviz.record():
    with autogradviz.record():
        pass
""",
    ),
    Page(
        slug="recording-state",
        title="A trace was read while it is recorded",
        means="""A trace holds nothing before its with block is left. A recording is entered once,
        and left once.""",
        happens="""trace.diagnose() stands inside of the block.""",
        fix="""Read it below the block; call record() anew for each recording.""",
        example="""
import autogradviz

with autogradviz.record() as trace:
    trace.diagnose()
""",
    ),
    Page(
        slug="unsupported-torch",
        title="This PyTorch lacks something that recording needs",
        means="""Recording stands on private names of PyTorch. One of them is missing in the
        installed version.""",
        happens="""A PyTorch that is older than the oldest supported one, or newer than the newest
        that was tested.""",
        fix="""Install a version that the message names. Traces open with any.""",
        example="""
from unittest import mock

import torch
import autogradviz

with mock.patch.object(torch.autograd.graph, "_swap_with_cloned", None):
    with autogradviz.record():
        pass
""",
    ),
    Page(
        slug="not-a-trace",
        title="The file is not a trace",
        means="""The file is none that trace.save() wrote, or one of a newer autogradviz.""",
        happens="""Another file was named, or the file was cut off before anything was written.""",
        fix="""Name a file that trace.save("x.agv") wrote; or install the newer version.""",
        example="""
from pathlib import Path

import autogradviz

Path("notes.txt").write_text("no trace")
autogradviz.load("notes.txt")
""",
    ),
    Page(
        slug="not-a-graph",
        title="There is no autograd graph",
        means="""autogradviz.graph() was given something that autograd did not follow.""",
        happens="""The tensor was computed under torch.no_grad(), or from nothing that requires a
        gradient.""",
        fix="""Pass a result that requires grad, computed outside of no_grad.""",
        example="""
import torch
import autogradviz

autogradviz.graph(torch.rand(3).sum())
""",
    ),
    Page(
        slug="missing-program",
        title="A program is not installed",
        means="""engine="dot" draws with Graphviz's own program, which pip does not install.""",
        happens="""dot is not on the PATH.""",
        fix="""Install Graphviz, or leave engine at "native", which needs no program.""",
        example="""
import os
from unittest import mock

import torch
import autogradviz

view = autogradviz.graph(torch.rand(3, requires_grad=True).sum())
with mock.patch.dict(os.environ, {"PATH": ""}):
    view.svg(engine="dot")
""",
    ),
    Page(
        slug="graph-too-large",
        title="The graph is too large for this engine",
        means="""dot needs minutes and gigabytes for graphs of more than 5,000 boxes.""",
        happens="""Everything is opened, with a large depth, and drawn with engine="dot".""",
        fix="""Use engine="native", or open fewer levels.""",
        example="""
import torch
import autogradviz

x = torch.rand(3, requires_grad=True)
for _ in range(5_001):
    x = x.sin()
autogradviz.graph(x.sum(), depth=99).dot()
""",
    ),
    Page(
        slug="unknown-slug",
        title="No page has that name",
        means="""autogradviz explain takes the name of a finding or an error.""",
        happens="""A name that was mistyped.""",
        fix="""autogradviz explain without a name lists them all.""",
        example="""
import autogradviz

autogradviz.explain("graph-list")
""",
    ),
)
