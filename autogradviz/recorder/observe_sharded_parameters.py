"""Observe ``fully_shard``: parameters that are gathered and sharded again."""

from __future__ import annotations

import functools
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from autogradviz.events import (
    ParametersResharded,
    ParametersUnsharded,
    WholeParameterSeen,
)
from autogradviz.recorder.torch_internals.distributed import (
    TRANSITIONS,
    is_unsharded,
    modules_of,
    parameter_group_class,
    parameters_of,
    whole_parameters,
)
from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_frame
from autogradviz.recorder.torch_internals.patches import patched
from autogradviz.recorder.torch_internals.private_api import DisableTorchFunction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from autogradviz.recorder.engine_interface import TensorIds
    from autogradviz.recorder.leaf_tensors_and_versions import LeafTable
    from autogradviz.recorder.module_names_and_calls import ModuleTable
    from autogradviz.recorder.session import Session


_NO_REGION = (None, None)


class _ShardedParameters:
    """Records which groups of parameters are gathered."""

    def __init__(
        self,
        session: Session,
        modules: ModuleTable,
        tensors: TensorIds,
        leaves: LeafTable,
        sharded: dict[int, int],
    ) -> None:
        self._session = session
        self._modules = modules
        self._tensors = tensors
        self._leaves = leaves
        self._sharded = sharded

    def changed(self, group: Any) -> None:
        """Record that a group of parameters was gathered or freed."""
        session = self._session
        state = session.threads.local.state
        place = state.regions[-1] if state.regions else _NO_REGION
        known = (self._modules.find(module) for module in modules_of(group))
        module_id = next((each for each in known if each is not None), None)
        nbytes, names = whole_parameters(group)
        stack_id = session.stack_id()
        if is_unsharded(group):
            self._find_leaves(group)
            session.emit(ParametersUnsharded, module_id, names, nbytes, *place, stack_id=stack_id)
        else:
            session.emit(ParametersResharded, module_id, nbytes, *place, stack_id=stack_id)

    def _find_leaves(self, group: Any) -> None:
        """Record the leaves of whole parameters, each once."""
        known = self._sharded
        with DisableTorchFunction():
            for part, whole in parameters_of(group):
                tensor_id = self._tensors.intern(whole)
                if tensor_id not in known:
                    known[tensor_id] = self._tensors.intern(part)
                    self._leaves.add(known[tensor_id], part)
                    self._session.emit(WholeParameterSeen, tensor_id, known[tensor_id])


@contextmanager
def observe_sharded_parameters(
    session: Session,
    modules: ModuleTable,
    tensors: TensorIds,
    leaves: LeafTable,
    sharded: dict[int, int],
) -> Iterator[None]:
    """Record gathered parameters while the context is open, if FSDP2 is imported before.

    Args:
        session: of the recording.
        modules: of the recording.
        tensors: of the recording.
        leaves: of the recording; parameters are added.
        sharded: gets the ids of whole parameters, and of those that keep this rank's part.
    """
    owner = parameter_group_class()
    if owner is None:
        yield
        return
    table = _ShardedParameters(session, modules, tensors, leaves, sharded)
    with ExitStack() as installed:
        for name in TRANSITIONS:
            ours = _wrapper(session, table, vars(owner)[name])
            installed.enter_context(patched(owner, **{name: ours}))
        yield


def _wrapper(
    session: Session, table: _ShardedParameters, original: Callable[[Any], None]
) -> Callable[[Any], None]:
    @skip_frame
    def change(group: Any) -> None:
        before = is_unsharded(group)
        original(group)
        if is_unsharded(group) != before:
            session.guarded("sharded parameters", table.changed, group)

    return functools.wraps(original)(change)
