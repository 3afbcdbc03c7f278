"""Named queries over real recordings agree with what ``Trace`` returns."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import autogradviz
from autogradviz.events import TensorReleased
from autogradviz.sql_queries.named_queries import named_queries, query_of, run_query

pytest.importorskip("duckdb")

EMPTY = {"writes-to-saved", "unpacked-changed", "graph-breaks"}
"""Queries without rows for the step below."""


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4, 8)
        self.down = nn.Linear(8, 2)
        self.unused = nn.Linear(2, 2)
        self.calls = 0

    def block(self, x):
        self.calls += 1
        return self.up(x).tanh() * (self.calls / self.calls)

    def forward(self, x):
        return self.down(checkpoint(self.block, x, use_reentrant=False)).log()


def rows(trace, name):
    columns, found = run_query(trace.log, name)
    return [dict(zip(columns, row, strict=True)) for row in found]


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.SGD(model.up.parameters(), lr=0.1)
    path = tmp_path_factory.mktemp("trace") / "x.agv"
    with autogradviz.record(model, path=path, fingerprints=True) as recorded:
        out = model(torch.rand(3, 4))
        out.register_hook(lambda grad: grad * 2)
        out.sum().backward()
        optimizer.step()
        kept = model.down(torch.rand(3, 8)).exp()
    assert kept.grad_fn is not None
    return recorded


@pytest.mark.ci(reason="runs every query over a long recording")
def test_queries_have_rows_where_something_was_recorded(trace):
    empty = {query.name for query in named_queries() if not rows(trace, query.name)}
    assert empty == EMPTY


def test_sums_are_those_of_the_trace(trace):
    analysis = trace.analysis
    assert sum(row["calls"] for row in rows(trace, "ops")) == len(analysis.ops)
    of_modules = {row["module"]: row["ops"] for row in rows(trace, "modules")}
    forward = [op.module for op in analysis.ops if op.phase == "forward"]
    assert {name: of_modules[name] for name in ("up", "down")} == {
        name: forward.count(name) for name in ("up", "down")
    }
    alive = {row["seq"] for row in rows(trace, "never-released")}
    assert len(alive) == len(analysis.saved) - len(trace.log.of(TensorReleased))
    (region,) = rows(trace, "recomputations")
    assert region["recomputations"] == len(trace.checkpoints()[0].recomputations) == 1


def test_parameters_without_gradient_or_optimizer_are_those_of_the_model(trace):
    assert [row["parameter"] for row in rows(trace, "without-gradient")] == [
        "unused.bias", "unused.weight",
    ]  # fmt: skip
    assert [row["parameter"] for row in rows(trace, "without-optimizer")] == [
        "down.bias", "down.weight",
    ]  # fmt: skip


def test_saved_tensors_are_counted_with_their_lines_and_nodes(trace):
    saved = [each for each in trace.analysis.saved.values() if each.recompute_id is None]
    by_node = rows(trace, "saved-by-node")
    assert sum(row["tensors"] for row in by_node) == len(saved)
    assert sum(row["nbytes"] for row in by_node) == sum(each.tensor.nbytes for each in saved)
    lines = {f"{__file__.rpartition('/')[2]}:{each.location.lineno}" for each in saved}
    assert {row["line"] for row in rows(trace, "saved-by-line")} <= lines


def test_findings_of_changed_state_and_writes_name_a_query_that_shows_them():
    class Drifting(Model):
        def block(self, x):
            self.calls += 1
            return self.up(x).tanh().exp() if self.calls == 1 else self.up(x).tanh()

    model = Drifting()
    with pytest.raises(RuntimeError), autogradviz.record(model) as drifted:
        model(torch.rand(3, 4)).sum().backward()
    x = torch.rand(3, requires_grad=True)
    with pytest.raises(RuntimeError), autogradviz.record() as written:
        y = x.exp()
        y.mul_(2)
        y.sum().backward()
    names = []
    for trace in (drifted, written):
        finding = trace.diagnose()[0]
        names.append(query_of(finding.events, trace.log))
        assert {row["seq"] for row in rows(trace, names[-1])} & set(finding.events)
    assert names == ["state-changes", "unpacked-changed"]
    (row,) = rows(written, "writes-to-saved")
    assert (row["op"], row["slot"]) == ("aten.mul_.Tensor", "result")
