"""Tables that predictions of memory need: module calls, saves and sizes of storages."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from autogradviz.analysis.predict_memory import SavedMemoryModel
from autogradviz.scene.checkpoint_plans import build_plans
from autogradviz.scene.schema import (
    SceneBudgetPlan,
    SceneHeldSave,
    SceneModuleCall,
    SceneStorageSize,
)
from autogradviz.support.fast_dataclass_constructor import maker

if TYPE_CHECKING:
    from autogradviz.analysis import Analysis


_make_call = maker(SceneModuleCall)
_make_save = maker(SceneHeldSave)
_make_size = maker(SceneStorageSize)


class PredictionTables(TypedDict):
    """Tables of ``Scene`` that a prediction needs."""

    budget_plans: tuple[SceneBudgetPlan, ...]
    module_calls: tuple[SceneModuleCall, ...]
    held_saves: tuple[SceneHeldSave, ...]
    storage_sizes: tuple[SceneStorageSize, ...]


def build_prediction_tables(analysis: Analysis) -> PredictionTables:
    """Return module calls, saves and sizes; empty without ops, which a prediction needs."""
    if not analysis.ops:
        return PredictionTables(budget_plans=(), module_calls=(), held_saves=(), storage_sizes=())
    model = SavedMemoryModel(analysis)
    calls = {call_id: at for at, call_id in enumerate(model.calls)}
    storages = {storage_id: at for at, storage_id in enumerate(model.nbytes)}
    return PredictionTables(
        budget_plans=build_plans(analysis, model),
        module_calls=tuple(
            _make_call(
                parent=_index(calls, call.parent),
                module=call.module,
                step=call.step,
                recompute_ns=call.recompute_ns,
                entered_seq=call.entered_seq,
                unpacked_seqs=call.unpacked_seqs,
                released_seq=_number(call.released_seq),
                inputs=tuple(storages[storage_id] for storage_id in call.inputs),
                copied=call.copied,
                fixed=call.is_fixed,
            )
            for call in model.calls.values()
        ),
        held_saves=tuple(
            _make_save(
                storage=storages[save.storage_id],
                call=_index(calls, save.call_id),
                created_in=_index(calls, save.created_in),
                start_seq=save.start_seq,
                end_seq=_number(save.end_seq),
                used_seqs=tuple(_number(seq) for seq in save.used_seqs),
            )
            for save in model.saves
        ),
        storage_sizes=tuple(
            _make_size(storage_id=storage_id, nbytes=nbytes)
            for storage_id, nbytes in model.nbytes.items()
        ),
    )


def _index(indices: dict[int, int], key: int | None) -> int:
    return -1 if key is None else indices.get(key, -1)


def _number(value: int | None) -> int:
    return -1 if value is None else value
