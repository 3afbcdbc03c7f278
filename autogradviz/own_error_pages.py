"""Documentation pages of autogradviz's own errors."""

from __future__ import annotations

from typing import Final

from autogradviz.diagnose.explain_page import Page

ERROR_PAGES: Final = (
    Page(
        slug="autogradviz-error",
        title="A command cannot do its task",
        means="""The base class of all errors of autogradviz. Raised as such, a command was given
        an argument that it cannot use.""",
        happens="""For instance, -o names the trace that is to be drawn.""",
        fix="""The message says which argument to change.""",
        example="""
from autogradviz.errors import AutogradvizError

raise AutogradvizError("x.agv is the trace itself; name another file with -o")
""",
    ),
    Page(
        slug="already-recording",
        title="Another recording is open",
        means="""Recording changes state of the process, so only one recording can be open.""",
        happens="""record() inside record(), or in two threads at the same time.""",
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
        title="A trace was read during its recording",
        means="""A trace is empty until its with block ends. A recording can be entered once and
        exited once.""",
        happens="""trace.diagnose() is called inside the with block.""",
        fix="""Read the trace after the block; call record() again for each recording.""",
        example="""
import autogradviz

with autogradviz.record() as trace:
    trace.diagnose()
""",
    ),
    Page(
        slug="native-build",
        title="The native engine cannot be built or used",
        means="""record(engine="native") or `autogradviz native build` needs the C++ extension,
        which belongs to one version of PyTorch and Python.""",
        happens="""There is no C++ compiler, the cache folder cannot be written, the version is not
        supported, or the recording needs what only the Python engine does: fingerprints, or no
        operators.""",
        fix="""Read the message; `autogradviz native status` says more. With engine="auto", the
        default, a recording uses the Python engine then.""",
        example="""
import autogradviz

with autogradviz.record(engine="native", fingerprints=True):
    pass
""",
    ),
    Page(
        slug="unsupported-torch",
        title="This version of PyTorch lacks something that recording needs",
        means="""Recording uses private names of PyTorch. One of them is missing in the installed
        version.""",
        happens="""PyTorch is older than the oldest supported version, or newer than the newest
        tested one.""",
        fix="""Install a version that the message names. Traces open with any version.""",
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
        means="""trace.save() did not write this file, or a newer autogradviz did.""",
        happens="""The path of another file, or a file that was cut off before the first event.""",
        fix="""Pass a file that trace.save("x.agv") wrote, or install the newer version.""",
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
        means="""autogradviz.graph() was given a tensor without a grad_fn.""",
        happens="""The tensor was computed under torch.no_grad(), or none of its inputs requires a
        gradient.""",
        fix="""Pass a result that requires grad, computed outside no_grad.""",
        example="""
import torch
import autogradviz

autogradviz.graph(torch.rand(3).sum())
""",
    ),
    Page(
        slug="missing-program",
        title="A program is not installed",
        means="""engine="dot" runs Graphviz's dot program, which pip does not install.""",
        happens="""dot is not on the PATH.""",
        fix="""Install Graphviz, or use engine="native", which needs no program.""",
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
        means="""dot takes minutes and gigabytes of memory for graphs of more than 5,000 boxes.""",
        happens="""A large depth opens all modules, and engine="dot" draws them.""",
        fix="""Use engine="native", or a smaller depth.""",
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
        title="The program to run does not exist",
        means="""autogradviz run takes a script, a folder with __main__.py, or -m and a module.""",
        happens="""A misspelled path, or a module that is not on the search path.""",
        fix="""Write the arguments as for python.""",
        example="""
from autogradviz.cli.run_script import Program, run_as_main

run_as_main(Program("absent.py", (), module=False))
""",
    ),
    Page(
        slug="file-exists",
        title="The output path is in use",
        means="""A trace replaces only a trace, a report only a report, a picture or an export
        only an older one. A trace that is written during its recording, or when a training
        fails, replaces nothing.""",
        happens="""A second run of a training with the same record(path=...).""",
        fix="""Use another path, remove the old file, or pass overwrite=True (--overwrite on the
        command line) to save(), html(), svg(), export() or snapshot().""",
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
        title="Unknown export format",
        means="""trace.export() derives the format from the suffix of the path.""",
        happens="""The suffix, or the format argument, is none of the known formats.""",
        fix="""Use one of parquet, sqlite, perfetto, model-explorer, graphml and dot.""",
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
        means="""A format needs a package that is not a requirement of autogradviz.""",
        happens="""trace.export("step.pftrace") if perfetto is not installed.""",
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
        slug="unknown-region",
        title="The trace has no such compiled region",
        means="""The trace has no compiled region of this name, or it has several.""",
        happens="""A misspelled name, a trace in which nothing was compiled, or a program that was
        compiled again, so that its regions have other numbers.""",
        fix="""trace.compiled_regions() lists all; their names and positions are accepted.""",
        example="""
import torch
import autogradviz

with autogradviz.record() as trace:
    torch.ones(2, requires_grad=True).sum().backward()
trace.compiled_graph("forward [0/0]")
""",
    ),
    Page(
        slug="unknown-slug",
        title="No finding or error has this name",
        means="""autogradviz explain takes the slug of a finding or an error.""",
        happens="""A misspelled name.""",
        fix="""autogradviz explain without a name lists all of them.""",
        example="""
import autogradviz

autogradviz.explain("graph-list")
""",
    ),
)
