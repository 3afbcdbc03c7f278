"""What a checkpointed region keeps instead of its activations: its tensor arguments."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch

from autogradviz.events import NO_ID
from autogradviz.recorder.ids.tensors import version_of
from autogradviz.signals import interrupt_again

if TYPE_CHECKING:
    from autogradviz.recorder.recorder import Recorder, RecorderRef

_NoFunctions = torch._C.DisableTorchFunction  # noqa: SLF001
_SavedTensor: Any = torch._C._autograd.SavedTensor  # noqa: SLF001


class ArgumentTable:
    """Records the arguments that checkpoint's frames hold, and when the frames let them go."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._frames: set[weakref.ref[Any]] = set()

    def keep(self, frame: Any, region: tuple[int | None, int | None], stack_id: int | None) -> None:
        """Record the tensors that a frame keeps for running its region again."""
        with _NoFunctions():
            kept = self._tell_kept(frame, region, stack_id)
        if kept:
            self._frames.add(weakref.ref(frame, _Release(self._recorder.gate, kept)))

    def _tell_kept(
        self, frame: Any, region: tuple[int | None, int | None], stack_id: int | None
    ) -> list[int]:
        saves = self._recorder.saves
        kept = []
        for index, held in enumerate(getattr(frame, "saved_args", ())):
            if not isinstance(held, _SavedTensor) or held.unpack_hook is not None:
                continue
            tensor = held.data
            if isinstance(tensor, torch.Tensor):
                version = version_of(tensor)
                saved_id = saves.new(
                    tensor,
                    packed_by="checkpoint",
                    slot=f"args[{index}]",
                    version=None if version == NO_ID else version,
                    region=region,
                    stack_id=stack_id,
                )
                kept.append(saved_id)
        return kept

    def released(self, frame: weakref.ref[Any], saved_ids: list[int]) -> None:
        """Record that a frame died, and with it what it kept."""
        self._frames.discard(frame)
        thread = self._recorder.threads.state().number
        for saved_id in saved_ids:
            self._recorder.saves.released(saved_id, thread)


class _Release:
    """Called when a frame dies; outlives the recording, so it holds the gate only."""

    def __init__(self, gate: RecorderRef, saved_ids: list[int]) -> None:
        self._gate = gate
        self._saved_ids = saved_ids

    def __call__(self, frame: weakref.ref[Any]) -> None:
        recorder = self._gate.recorder
        if recorder is None:
            return
        try:
            recorder.guarded("release", recorder.arguments.released, frame, self._saved_ids)
        except BaseException as error:  # noqa: BLE001 - Python would drop it here
            interrupt_again(error)
