"""Logs of ``TORCH_TRACE`` are read without PyTorch."""

from __future__ import annotations

import json

import pytest

from autogradviz import load
from autogradviz.cli.entry_point import main
from autogradviz.errors import NotATraceError
from autogradviz.export.import_compile_trace import import_compile_trace
from autogradviz.trace import Trace

FORWARD = """\
class GraphModule(torch.nn.Module):
    def forward(
        self,
        primals_1: "f32[2, 4][4, 1]cpu",  # PlainAOTInput(idx=0)
    ):
        # File: /home/ada/train.py:7 in step, code: y = x.sin()
        sin: "f32[2, 4][4, 1]cpu" = torch.ops.aten.sin.default(primals_1)

        # File: /home/ada/train.py:8 in step, code: return y.exp()
        exp: "f32[2, 4][4, 1]cpu" = torch.ops.aten.exp.default(sin);  sin = None
        return (exp, primals_1, exp)
"""
BACKWARD = """\
class GraphModule(torch.nn.Module):
    def forward(
        self,
        primals_1: "f32[2, 4][4, 1]cpu",  # PlainAOTInput(idx=0)
        exp: "f32[2, 4][4, 1]cpu",
        tangents_1: "f32[2, 4][4, 1]cpu",  # TangentAOTInput
    ):
        # File: /home/ada/train.py:8 in step, code: return y.exp()
        mul: "f32[2, 4][4, 1]cpu" = torch.ops.aten.mul.Tensor(tangents_1, exp);  exp = None

        # File: /home/ada/train.py:7 in step, code: y = x.sin()
        cos: "f32[2, 4][4, 1]cpu" = torch.ops.aten.cos.default(primals_1);  primals_1 = None
        mul_1: "f32[2, 4][4, 1]cpu" = torch.ops.aten.mul.Tensor(mul, cos);  mul = cos = None
        return (mul_1,)
"""
BREAK = """\
Graph break in user code at /home/ada/train.py:9
Graph Break Reason: Encountered graph break when attempting to trace CALL:

Failed to trace builtin operator
  Hint: avoid it

User code traceback:
  File "/home/ada/train.py", line 9, in step
    print(y)
"""
GUARD = """\
0/0: n == 3      # y = x * n  # train.py:6 in step
User stack trace:
  File "/home/ada/train.py", line 6, in step
    y = x * n"""
STACK = {"stack": [{"line": 20, "name": "main", "filename": 3, "loc": "f()"}]}
METRICS = {"co_name": "step", "co_filename": "/home/ada/train.py", "co_firstlineno": 5}


def log_of(*records, compile_id=(0, 1)):
    """Return the text of a log."""
    lines = []
    for second, (head, text) in enumerate(records):
        names = {"frame_id": compile_id[0], "frame_compile_id": compile_id[1], "attempt": 0}
        content = head if "str" in head else {**head, **names}
        lines.append(
            f"V1123 14:08:{second:02d}.500000 6856 torch/_dynamo/x.py:1] {json.dumps(content)}"
        )
        lines += [f"\t{line}" for line in text.splitlines()]
    return "\n".join(lines) + "\n"


@pytest.fixture
def folder(tmp_path):
    text = log_of(
        ({"str": ["/home/ada/train.py", 3]}, ""),
        ({"artifact": {"name": "recompile_reasons", "encoding": "json"}}, GUARD),
        ({"dynamo_start": STACK}, ""),
        ({"artifact": {"name": "dynamo_graph_break_reason", "encoding": "string"}}, BREAK),
        ({"dynamo_output_graph": {"sizes": {}}}, "def forward(self, x):\n    sin = x.sin()"),
        ({"aot_forward_graph": {}}, FORWARD),
        ({"aot_backward_graph": {}}, BACKWARD),
        ({"compilation_metrics": METRICS}, ""),
    )  # fmt: skip
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "dedicated_log_torch_trace_1.log").write_text(text + "V1123 cut off", "utf-8")
    return logs


def test_log_becomes_regions_with_slots_breaks_and_guards(folder):
    (region,) = Trace(import_compile_trace(folder)).compiled_regions()
    assert (region.name, region.source, str(region.compiled_by)) == (
        "step [0/1]", "log", "/home/ada/train.py:20",
    )  # fmt: skip
    assert [(op.name, op.target, op.location.lineno) for op in region.forward_ops] == [
        ("sin", "aten.sin.default", 7),
        ("exp", "aten.exp.default", 8),
    ]
    assert [(slot.name, slot.kind, slot.nbytes) for slot in region.saved] == [
        ("primals_1", "input", 32),
        ("exp", "value", 32),
    ]
    assert region.recomputed == ()
    (found,) = region.graph_breaks
    assert (found.reason, found.location.lineno) == ("Failed to trace builtin operator", 9)
    (guard,) = region.recompiles
    assert (guard.guard, guard.failed_compile_id, guard.location.lineno) == ("n == 3", "0/0", 6)


def test_command_writes_a_trace(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["import-compile-trace", str(folder)]) == 0
    assert load(tmp_path / "logs.agv").log == import_compile_trace(folder)


def test_folder_without_logs_is_an_error(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing", "utf-8")
    with pytest.raises(NotATraceError, match="TORCH_TRACE"):
        import_compile_trace(tmp_path)
    assert main(["import-compile-trace", str(tmp_path / "absent")]) == 2
