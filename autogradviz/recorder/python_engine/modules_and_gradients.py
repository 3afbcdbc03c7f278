"""Calls of modules, and gradients as plain tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.events import ModuleEntered, ModuleExited
from autogradviz.recorder.torch_internals.compilers import skip_dynamo_recursive
from autogradviz.recorder.torch_internals.private_api import get_sequence_nr

if TYPE_CHECKING:
    from autogradviz.recorder.device_times import DeviceTimes
    from autogradviz.recorder.engine_interface import RecentTensors
    from autogradviz.recorder.module_calls import ModuleTable
    from autogradviz.recorder.session import Session


# --- the calls of modules, recorded in Python -----------------------------------------------------


class ModuleCallTable:
    """Records the calls of modules."""

    def __init__(self, session: Session, modules: ModuleTable, recent: RecentTensors) -> None:
        self._session = session
        self._stops = session.stops
        self._local = session.threads.local
        self._modules = modules
        self._recent = recent
        self.times: DeviceTimes | None = None
        self._calls = 0
        self._emit_entered = session.emitter(ModuleEntered)
        self._emit_exited = session.emitter(ModuleExited)

    @skip_dynamo_recursive
    def on_enter(self, module: torch.nn.Module) -> tuple[int, int] | None:
        """Record that a module's forward starts.

        Returns:
            The number of open calls and of marked frames before it, for ``on_exit``.
        """
        self._session.begin_recorder_time()
        try:
            if not self._session.observes():
                return None
            state = self._local.state
            number = get_sequence_nr()
            module_id = self._modules.intern(module, state)
            if module_id is None:
                return None
            call_id = self._calls
            self._calls += 1
            calls = state.calls
            opened = (len(calls), len(state.marks))
            self._emit_entered(
                state.number, None, call_id, calls[-1] if calls else None, module_id, number
            )
            self._session.stacks.mark(1, state)
            calls.append(call_id)
            state.modules.append(module_id)
            if self._session.addresses is not None:
                self._session.addresses.module_changed(number, state)
            if self.times is not None:
                self.times.on_enter(module)
        except Exception as error:  # noqa: BLE001 - whatever failed here, the module must run
            self._session.fail("modules", error)
            return None
        finally:
            self._session.end_recorder_time()
        if self._stops is not None:
            self._stops.module_entered(module, self._modules.name_of(module_id))
        return opened

    @skip_dynamo_recursive
    def on_exit(self, opened: tuple[int, int], output: Any) -> None:
        """Record that a module's forward ended (``output`` is None if it raised)."""
        self._session.begin_recorder_time()
        try:
            state = self._local.state
            calls = state.calls
            depth, marks = opened
            if self.times is not None:
                self.times.on_exit(opened)
            del state.marks[marks:]
            while len(calls) > depth:
                call_id = calls.pop()
                state.modules.pop()
                self._emit_exited(state.number, None, call_id, get_sequence_nr(), output is None)
            if self._session.addresses is not None:
                self._session.addresses.module_changed(get_sequence_nr(), state)
            if not calls:
                self._recent.remember(output)
        except Exception as error:  # noqa: BLE001
            self._session.fail("modules", error)
        finally:
            self._session.end_recorder_time()


# --- gradients that can be read without the checks that unusual tensors need ----------------------


_ITEMSIZES: Final = {torch.float32: 4, torch.float64: 8, torch.float16: 2, torch.bfloat16: 2}
"""Bytes of an entry, for the dtypes that most gradients have."""


def ordinary_nbytes(gradient: torch.Tensor) -> int:
    """Return the bytes of a contiguous real gradient on the host, 0 for any other one.

    For these half of the checks of ``readable`` are enough. Tensors that functorch wraps, and those
    that are not strided, have no storage.
    """
    itemsize = _ITEMSIZES.get(gradient.dtype)
    if itemsize is None or type(gradient) is not torch.Tensor or not gradient.is_cpu:
        return 0
    try:
        storage = gradient.untyped_storage()
    except RuntimeError:
        return 0
    if gradient.is_nested or gradient.is_neg() or gradient._is_zerotensor():  # noqa: SLF001
        return 0
    nbytes = gradient.numel() * itemsize
    allocated = storage.nbytes() - gradient.storage_offset() * itemsize >= nbytes
    return nbytes if allocated and gradient.is_contiguous() else 0
