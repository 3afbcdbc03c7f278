"""The place of this process in a distributed run: its rank, process groups and device meshes.

Also the models in ``DistributedDataParallel`` and the buckets of their gradients.
"""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING, Any

from autogradviz.events import (
    DataParallelSeen,
    GradientBucketSeen,
    MeshSeen,
    ProcessGroupSeen,
    RankSeen,
    StepUnfinished,
)
from autogradviz.recorder.ops.hashes_norms_and_draws import below_autograd
from autogradviz.recorder.torch_internals.distributed import (
    bucket_cap_nbytes,
    coordinates_in_mesh,
    device_meshes,
    initialized_distributed,
    is_data_parallel,
    process_groups,
    rebuilt_buckets,
)
from autogradviz.recorder.torch_internals.private_api import DisableTorchFunction
from autogradviz.support.rank_and_trace_paths import current_rank

if TYPE_CHECKING:
    import weakref

    from torch.nn.parallel import DistributedDataParallel

    from autogradviz.recorder.module_names_and_calls import ModuleTable
    from autogradviz.recorder.session import Session


class RankTable:
    """Records the rank, and each process group and mesh once, without communication."""

    def __init__(self, session: Session, modules: ModuleTable) -> None:
        self._session = session
        self._modules = modules
        self.has_rank = False
        """Whether the process is known to be one of several."""
        self._groups: set[str] = set()
        self._meshes: set[tuple[Any, ...]] = set()
        self._searched_meshes = False
        self._searched_modules = 0
        self._wrappers: list[tuple[str, weakref.ref[DistributedDataParallel]]] = []
        self._buckets: dict[str, tuple[Any, ...]] = {}

    def read_rank(self) -> None:
        """Record the rank, if it is known by now."""
        rank = None if self.has_rank else current_rank()
        if rank is None:
            return
        self.has_rank = True
        self._session.emit(
            RankSeen,
            rank.rank,
            rank.world_size,
            rank.local_rank,
            platform.node(),
            os.getpid(),
            rank.run_name,
            rank.restart_count,
        )

    def read(self, *, at_end: bool = False) -> None:
        """Record what is new; a step or the recording has ended.

        Meshes are searched at the end of the first step and of the recording: it takes long.
        """
        distributed = initialized_distributed()
        if distributed is None:
            return
        self.read_rank()
        for group in process_groups(distributed):
            if group.name not in self._groups:
                self._groups.add(group.name)
                self._session.emit(ProcessGroupSeen, *group)
        self._read_data_parallel()
        if at_end or not self._searched_meshes:
            self._searched_meshes = True
            with DisableTorchFunction(), below_autograd():
                self._read_meshes()

    def _read_data_parallel(self) -> None:
        """Record new wrappers, and their buckets after each new arrangement."""
        new = self._modules.since(self._searched_modules)
        self._searched_modules = self._modules.count
        for name, reference in new:
            module = reference()
            if module is not None and is_data_parallel(module):
                self._wrappers.append((name, reference))  # type: ignore[arg-type]
                self._session.emit(
                    DataParallelSeen,
                    name,
                    module.find_unused_parameters,
                    module.static_graph,
                    bucket_cap_nbytes(module),
                )
        for name, wrapper_reference in self._wrappers:
            wrapper = wrapper_reference()
            found = () if wrapper is None else rebuilt_buckets(wrapper)
            if found and self._buckets.get(name) != found:
                self._buckets[name] = found
                for number, (nbytes, parameters) in enumerate(found):
                    self._session.emit(GradientBucketSeen, name, number, nbytes, parameters)

    def end_step(self) -> None:
        """Record the ops after the last step; the recording ends."""
        if self.has_rank:
            self._session.emit(StepUnfinished, *self._session.take_step())

    def _read_meshes(self) -> None:
        for mesh in device_meshes():
            names = tuple(mesh.mesh_dim_names or ())
            found = names, tuple(mesh.shape), coordinates_in_mesh(mesh)
            if found not in self._meshes:
                self._meshes.add(found)
                self._session.emit(MeshSeen, *found)
