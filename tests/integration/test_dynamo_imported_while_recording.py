"""Dynamo copies attributes of PyTorch when it is imported, which may be during a recording."""

import subprocess
import sys

import pytest

PROGRAM = """
import gc, sys
import torch
import autogradviz

assert "torch._dynamo" not in sys.modules
w = torch.nn.Parameter(torch.ones(4))


def train():
    step = torch.compile(torch.optim.SGD([w], lr=0.1).step, backend="aot_eager")
    (w * 2).sum().backward()
    step()


with autogradviz.record(engine=sys.argv[1]) as trace:
    train()

from torch._dynamo.variables.tensor import all_tensor_attrs

assert all_tensor_attrs == torch._C.TensorBase.__dict__ | torch.Tensor.__dict__
while gc.collect():
    pass
kept = [type(each).__name__ for each in gc.get_objects()
        if type(each) in (autogradviz.recorder.session.Session, torch.fx.Graph)
        or type(each).__mro__[-3:-2] == (torch.fx.GraphModule,)]
assert not kept, kept
assert trace.log
"""


@pytest.mark.ci(reason="imports Dynamo in new interpreters")
@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("engine", ["python", "native"])
def test_dynamo_keeps_neither_our_methods_nor_the_graphs_of_the_recording(engine):
    subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM, engine], check=True)
