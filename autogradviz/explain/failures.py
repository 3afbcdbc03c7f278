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
        slug="program-not-found",
        title="There is no such program",
        means="""autogradviz run takes a script, a folder with __main__.py, or -m and a module.""",
        happens="""A path that was mistyped, or a module that is not on the search path.""",
        fix="""Name it as for python itself.""",
        example="""
from autogradviz.cli.run_script import Program, run_as_main

run_as_main(Program("absent.py", (), module=False))
""",
    ),
    Page(
        slug="file-exists",
        title="Something stands where a file was to be written",
        means="""A trace is never written over a file that is not a trace, a report only over a
        report, a picture or an export only over an older one; a trace that is written while it is
        recorded, or when a training fails, is never written over anything.""",
        happens="""A training is run again with the same record(path=...).""",
        fix="""Name another file, or remove the old one.""",
        example="""
from pathlib import Path

import autogradviz

Path("run.agv").write_text("of yesterday")
with autogradviz.record(path="run.agv"):
    pass
""",
    ),
    Page(
        slug="unknown-format",
        title="There is no such format",
        means="""trace.export() takes its format from the end of the file's name.""",
        happens="""The name has another end, or a format was named that there is not.""",
        fix="""Name one: parquet, sqlite, perfetto, model-explorer, graphml or dot.""",
        example="""
import autogradviz

with autogradviz.record() as trace:
    pass
trace.export("step.doc")
""",
    ),
    Page(
        slug="missing-extra",
        title="A package is not installed",
        means="""A format is written with a package that autogradviz itself can do without.""",
        happens="""trace.export("step.pftrace") without the package perfetto.""",
        fix="""pip install "autogradviz[perfetto]".""",
        example="""
import sys
from unittest import mock

import autogradviz

with autogradviz.record() as trace:
    pass
with mock.patch.dict(sys.modules, {"perfetto.trace_builder.proto_builder": None}):
    trace.export("step.pftrace")
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
    Page(
        slug="hooks-mix-up",
        title="Saved-tensor hooks gave one tensor for another",
        means="""A pair of hooks kept two saved tensors under one key, and gave backward the content
        of one for the other. The gradient is wrong, and nothing is raised.""",
        happens="""The key is an address or an id: a tensor and its transpose share their memory,
        and addresses are used again when a tensor dies.""",
        fix="""Put shape, strides and dtype into the key, and keep what it names alive; or count
        the tensors.""",
        example="""
import torch
from torch.autograd.graph import saved_tensors_hooks
import autogradviz

kept = {}

def pack(tensor):
    key = tensor.untyped_storage().data_ptr()  # <-- named
    kept.setdefault(key, tensor.detach().clone(memory_format=torch.contiguous_format))
    return key, tensor.shape

def unpack(packed):
    key, shape = packed
    return kept[key].reshape(shape)

weight = torch.rand(3, 3, requires_grad=True)
with autogradviz.record(fingerprints=True) as trace:
    with saved_tensors_hooks(pack, unpack):
        h = weight.tanh()
        loss = (h @ h.t()).sum()
    loss.backward()
""",
    ),
    Page(
        slug="saved-memory-freed",
        title="The memory of a saved tensor was freed before backward",
        means="""A node kept a tensor for backward, and its storage was resized to nothing in
        between. The tensor still has its shape; its memory is gone.""",
        happens="""Sharded or offloaded weights are freed after forward, and not gathered again
        before backward reads them.""",
        fix="""Fill the storage before backward reads it, or free it only after backward().""",
        example="""
import torch
import autogradviz

x, weight = torch.rand(2, 3, requires_grad=True), torch.rand(3, 3)
with autogradviz.record() as trace:
    loss = (x @ weight).sum()
    weight.untyped_storage().resize_(0)  # <-- named
    loss.backward()
""",
    ),
)
