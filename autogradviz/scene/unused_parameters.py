"""The parameters that no node of the graph uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.analysis.formatting import format_shape
from autogradviz.events import ModuleEntered, ParameterSeen
from autogradviz.scene.schema import SceneUnusedParameter

if TYPE_CHECKING:
    from autogradviz.analysis import Analysis


def build_unused_parameters(analysis: Analysis) -> tuple[SceneUnusedParameter, ...]:
    """Return the parameters without a node, those first that require a gradient.

    They are frozen, their modules were not called, or nothing that backward started from depends on
    them.
    """
    used = {
        node.parameter.tensor.tensor_id
        for node in analysis.graph.nodes.values()
        if node.parameter is not None
    }
    # A view of it, or a copy of another rank, may be the leaf of the graph.
    storages = {analysis.tensors[tensor_id].storage_id for tensor_id in used} - {None}
    called = set(analysis.log.column(ModuleEntered, "module_id"))
    rows: dict[int, SceneUnusedParameter] = {}
    for event in analysis.log.of(ParameterSeen):
        tensor = analysis.tensors[event.tensor_id]
        if event.buffer or event.tensor_id in used or tensor.storage_id in storages:
            continue
        is_called = event.module_id in called
        state = "no gradient" if is_called else "never called"
        rows.setdefault(
            event.tensor_id,
            SceneUnusedParameter(
                name=event.parameter_name,
                module=event.parameter_name.rpartition(".")[0],
                shape=format_shape(tensor.shape),
                requires_grad=event.requires_grad,
                called=is_called,
                state=state if event.requires_grad else "frozen",
            ),
        )
    return tuple(sorted(rows.values(), key=lambda row: not row.requires_grad))
