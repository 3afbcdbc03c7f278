"""Calls of modules, recorded in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autogradviz.events import ModuleEntered, ModuleExited
from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_dynamo_recursive
from autogradviz.recorder.torch_internals.private_api import get_sequence_nr

if TYPE_CHECKING:
    import torch

    from autogradviz.recorder.device_times import DeviceTimes
    from autogradviz.recorder.engine_interface import RecentTensors
    from autogradviz.recorder.module_names_and_calls import ModuleTable
    from autogradviz.recorder.session import Session


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
