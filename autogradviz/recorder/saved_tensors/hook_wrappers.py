"""Saved-tensor hooks that do what somebody else's do, and tell of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from autogradviz.events import NO_ID, TensorMoved, TensorUnpacked
from autogradviz.recorder.ids.tensors import version_of
from autogradviz.recorder.ops.fingerprints import below_autograd
from autogradviz.recorder.saved_tensors.packed_tensors import kept_in, tell_written
from autogradviz.recorder.torch_internals.dynamo import transparent

if TYPE_CHECKING:
    from autogradviz.events import PackedBy
    from autogradviz.recorder.recorder import Recorder, RecorderRef
    from autogradviz.recorder.saved_tensors.packed_tensors import Packed

_NoFunctions = torch._C.DisableTorchFunction  # noqa: SLF001


class TracingPackHook:
    """A pack hook that does what the original does, and tells of it."""

    __slots__ = ("_count", "_gate", "_hook", "_packed_by", "_region")

    def __init__(
        self,
        gate: RecorderRef,
        hook: Any,
        packed_by: PackedBy,
        region: tuple[int | None, int | None],
    ) -> None:
        self._gate = gate
        self._hook = hook
        self._packed_by = packed_by
        self._region = region
        self._count = 0

    @transparent
    def __call__(self, tensor: torch.Tensor) -> Any:
        """Pack as the original does."""
        recorder = self._gate.recorder
        if recorder is None:
            return self._hook(tensor)
        save = recorder.guarded("saved tensors", self._begin, recorder, tensor)
        state = recorder.threads.local.state
        before = state.sequence_nr
        result = self._hook(tensor)
        # Ops in the hook must not pass for the one that created the node: it is still to come.
        state.sequence_nr = before
        if save is not None:
            recorder.saves.packed(save, result)
            if self._packed_by == "user":
                recorder.guarded("saved tensors", _look, recorder, save, result, tensor)
            if self._packed_by == "offload":
                recorder.guarded(
                    "saved tensors", _tell_moved, recorder, save.saved_id, tensor, _copy_in(result)
                )
        return result

    def _begin(self, recorder: Recorder, tensor: torch.Tensor) -> Packed:
        position = None
        if self._packed_by in {"checkpoint", "recompute"}:
            position = self._count
            self._count += 1
        with _NoFunctions():
            return recorder.saves.packing(tensor, self._packed_by, self._region, position)


class TracingUnpackHook:
    """An unpack hook that does what the original does, and tells of it.

    It lives as long as the graph, so it holds the original hook and the gate, nothing else.
    """

    __slots__ = ("_gate", "_hook", "_offload")

    def __init__(self, gate: RecorderRef, hook: Any, packed_by: PackedBy) -> None:
        self._gate = gate
        self._hook = hook
        self._offload = packed_by == "offload"

    @transparent
    def __call__(self, packed: Any) -> Any:
        """Unpack as the original does."""
        recorder = self._gate.recorder
        if recorder is None:
            return self._hook(packed)
        recorder.guarded("saved tensors", self._look_again, recorder, packed)
        try:
            result = self._hook(packed)
        except BaseException:
            recorder.guarded("saved tensors", self._emit, recorder, packed, None)
            raise
        recorder.guarded("saved tensors", self._emit, recorder, packed, result)
        return result

    def _look_again(self, recorder: Recorder, packed: Any) -> None:
        save = recorder.saves.find(packed, _running(recorder))
        if save is not None and save.kept:
            with _NoFunctions():
                tell_written(recorder, save.saved_id, save.kept)

    def _emit(self, recorder: Recorder, packed: Any, result: Any) -> None:
        failed = not isinstance(result, torch.Tensor)
        with _NoFunctions():
            seen_hash = None if failed else recorder.hash_of(result)
        node_id = _running(recorder)
        save = recorder.saves.find(packed, node_id)
        if save is None:
            return
        save.unpacked += 1
        original = save.original() if save.original is not None else None
        seen = NO_ID if original is None else version_of(original)
        stack_id = recorder.stacks.capture(3) if recorder.with_stacks else None
        recorder.emit(
            TensorUnpacked, save.saved_id, node_id, save.version,
            None if seen == NO_ID else seen, failed, save.saved_hash, seen_hash,
            stack_id=stack_id,
        )  # fmt: skip
        if self._offload and not failed:
            _tell_moved(recorder, save.saved_id, _copy_in(packed), result)


def _look(recorder: Recorder, save: Packed, result: Any, tensor: torch.Tensor) -> None:
    with _NoFunctions():
        save.kept = kept_in(recorder, result, tensor)


def _running(recorder: Recorder) -> int | None:
    """Return the node that runs in this thread."""
    state = recorder.threads.local.state
    return state.running[-1][1] if state.running else None


def _copy_in(packed: Any) -> torch.Tensor | None:
    """Return the copy that ``save_on_cpu`` packs behind a device; None where it did not."""
    pair = type(packed) is tuple and len(packed) == 2  # noqa: PLR2004
    return packed[1] if pair and isinstance(packed[1], torch.Tensor) else None


def _tell_moved(
    recorder: Recorder, saved_id: int, source: torch.Tensor | None, target: torch.Tensor | None
) -> None:
    """Record that ``save_on_cpu`` copied a tensor, where it did not keep it as it was."""
    if source is None or target is None:
        return
    number = recorder.tensors.number
    with _NoFunctions(), below_autograd():
        if number(target) == number(source):
            return
        nbytes = target.numel() * target.element_size()
        pinned = (target if target.device.type == "cpu" else source).is_pinned()
        recorder.emit(TensorMoved, saved_id, str(target.device), nbytes, pinned)
