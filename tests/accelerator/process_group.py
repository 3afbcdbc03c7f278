"""A process group for tensors of the device, whose collectives gloo does on the memory itself.

A collective is work of the current stream; the host does not wait, as with NCCL.
"""

from __future__ import annotations

from datetime import timedelta

import torch
import torch.distributed as dist
from torch.futures import Future

from tests.accelerator.build import load

_C = load()
NAME = "sim"


def init(rank: int, size: int, store_file: str) -> None:
    """Begin the default process group of this rank."""
    if NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, _create, devices=["sim", "cpu"])
    store = dist.FileStore(store_file, size)
    dist.init_process_group(NAME, rank=rank, world_size=size, store=store)


def _create(store, rank, size, timeout):
    return Group(rank, size, dist.ProcessGroupGloo(store, rank, size, timeout))


class Done(dist._Work):
    """The handle of a collective that is over."""

    def __init__(self, result):
        super().__init__()
        self.future = Future()
        self.future.set_result(result)

    def wait(self, timeout=timedelta()):
        return True

    def is_completed(self):
        return True

    def get_future(self):
        return self.future


def _flat(lists):
    return [each for tensors in lists for each in tensors]


class Group(dist.ProcessGroup):
    """Gloo on memory of the device."""

    def __init__(self, rank, size, gloo):
        super().__init__(rank, size)
        self.gloo = gloo
        self.count = size

    def getBackendName(self):
        return NAME

    @property
    def group_name(self):
        return dist.distributed_c10d._world.pg_names[self]

    pg_name = group_name

    def _run(self, name, read, written, collective):
        """Run ``collective`` on tensors of the CPU in place of those read and written."""
        views = _C.submit(f"c10d::{name}", read, written)
        collective(views[: len(read)], views[len(read) :]).wait()
        return Done(written)

    def allreduce(self, tensors, opts=None):
        opts = opts or dist.AllreduceOptions()
        average = opts.reduceOp == dist.ReduceOp.AVG
        if average:
            opts.reduceOp = dist.ReduceOp.SUM
        done = self._run("allreduce", [], tensors, lambda _, out: self.gloo.allreduce(out, opts))
        if average:
            torch._foreach_div_(tensors, self.count)
        return done

    def allreduce_coalesced(self, tensors, opts=None):
        for tensor in tensors:
            self.allreduce([tensor], opts)
        return Done(tensors)

    def broadcast(self, tensors, opts):
        return self._run("broadcast", [], tensors, lambda _, out: self.gloo.broadcast(out, opts))

    def allgather(self, outputs, inputs, opts=None):
        n = len(outputs[0])

        def gather(views, out):
            lists = [out[i : i + n] for i in range(0, len(out), n)]
            return self.gloo.allgather(lists, views, dist.distributed_c10d.AllgatherOptions())

        return self._run("allgather", inputs, _flat(outputs), gather)

    def _allgather_base(self, output, given, opts=None):
        return self.allgather([list(output.chunk(self.count))], [given])

    def allgather_into_tensor_coalesced(self, outputs, inputs, opts=None):
        for output, given in zip(outputs, inputs, strict=True):
            self._allgather_base(output, given)
        return Done(outputs)

    def reduce_scatter(self, outputs, inputs, opts=None):
        for output, parts in zip(outputs, inputs, strict=True):
            whole = torch.stack(list(parts))
            operation = dist.AllreduceOptions()
            operation.reduceOp = getattr(opts, "reduceOp", dist.ReduceOp.SUM)
            self.allreduce([whole], operation)
            output.copy_(whole[self.rank()])
        return Done(outputs)

    def _reduce_scatter_base(self, output, given, opts=None):
        return self.reduce_scatter([output], [list(given.chunk(self.count))], opts)

    def reduce_scatter_tensor_coalesced(self, outputs, inputs, opts=None):
        for output, given in zip(outputs, inputs, strict=True):
            self._reduce_scatter_base(output, given, opts)
        return Done(outputs)

    def alltoall_base(self, output, given, output_sizes, input_sizes, opts=None):
        options = dist.AllToAllOptions()
        return self._run(
            "alltoall", [given], [output],
            lambda views, out: self.gloo.alltoall_base(
                out[0], views[0], output_sizes, input_sizes, options
            ),
        )  # fmt: skip

    def scatter(self, outputs, inputs, opts):
        return self._run(
            "scatter", _flat(inputs), outputs,
            lambda views, out: self.gloo.scatter(out, [views] if views else [], opts),
        )  # fmt: skip

    def barrier(self, opts=None):
        return self.gloo.barrier(dist.BarrierOptions())

    # Their names since PyTorch 2.13.
    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced
    all_to_all_single = alltoall_base
