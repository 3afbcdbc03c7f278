"""Times of module calls and nodes on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from autogradviz.events import DeviceTimeRead, RecorderLimited
from autogradviz.recorder.modules_and_tensors_inside import tensors_inside
from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_dynamo_recursive
from autogradviz.recorder.torch_internals.private_api import DisableTorchFunction

if TYPE_CHECKING:
    from autogradviz.recorder.engine_interface import DeviceSpans
    from autogradviz.recorder.session import Session


# NOTE [ Time on the device ] in ``native/device_spans.h`` says how. The engine records the events
# of nodes; those of module calls are recorded here, at the call of the engine's own hook point.


MOST_WAITING: Final = 4096
"""Spans from which on those are read that the device has passed."""

NO_DEVICE: Final = "device_time=True recorded nothing: no module and no node ran on an accelerator"


def device_type() -> str | None:
    """Return the type of the accelerator of this process, None if it has none."""
    if not torch.accelerator.is_available():
        return None
    found = torch.accelerator.current_accelerator()
    return None if found is None else found.type


class DeviceTimes:
    """Records when devices ran the calls of modules, and reads the times."""

    def __init__(self, session: Session, device_type: str | None) -> None:
        """Prepare.

        Args:
            session: of the recording.
            device_type: of the accelerator; None if there is none.
        """
        self._session = session
        self._local = session.threads.local
        self._spans: DeviceSpans | None = session.device_spans
        self._type = device_type
        self._devices: dict[int, tuple[torch.device | None, tuple[int, ...]]] = {}
        self._inherited: dict[int, tuple[int, ...]] = {}  # of open calls
        self._read_at = MOST_WAITING
        self._emit = session.emitter(DeviceTimeRead)
        self._count = 0

    @skip_dynamo_recursive
    def on_enter(self, module: torch.nn.Module) -> None:
        """Record that a module's forward starts, of which the engine has recorded the call."""
        if self._spans is not None:
            self._session.guarded("device_time", self._begin, module)

    @skip_dynamo_recursive
    def on_exit(self, opened: int | tuple[int, int]) -> None:
        """Record that a module's forward ended; its call is still open."""
        if self._spans is not None:
            depth = opened if isinstance(opened, int) else opened[0]
            self._session.guarded("device_time", self._end, depth)

    def _begin(self, module: torch.nn.Module) -> None:
        assert self._spans is not None
        state = self._local.state
        call_id = state.calls[-1]
        outer = self._inherited.get(state.calls[-2], ()) if len(state.calls) > 1 else ()
        devices = self._devices_of(module, state.modules[-1]) or outer
        if devices:
            self._inherited[call_id] = devices
        for index in devices:
            self._spans.begin(call_id, index)

    def _end(self, depth: int) -> None:
        assert self._spans is not None
        for call_id in self._local.state.calls[: depth - 1 if depth else None : -1]:
            if self._inherited.pop(call_id, ()):
                self._spans.end(call_id)
        if self._spans.waiting() >= self._read_at:
            self._read(wait=False)

    def _devices_of(self, module: torch.nn.Module, module_id: int) -> tuple[int, ...]:
        """Return the devices that hold the parameters and buffers of a module."""
        with DisableTorchFunction():
            first = next((each for _, each in tensors_inside(module, "_parameters")), None)
            where = None if first is None else first.device
            known = self._devices.get(module_id)
            if known is not None and known[0] == where:
                return known[1]
            parameters = tensors_inside(module, "_parameters")
            tensors = [*parameters, *tensors_inside(module, "_buffers")]
            found = {each.device for _, each in tensors if each.device.type == self._type}
        devices = tuple(sorted({each.index or 0 for each in found}))
        self._devices[module_id] = where, devices
        return devices

    def _read(self, *, wait: bool) -> None:
        assert self._spans is not None
        rows, problem = self._spans.take(wait)
        thread = self._local.state.number
        for row in rows:
            self._emit(thread, None, *row)
        self._count += len(rows)
        self._read_at = MOST_WAITING + 2 * self._spans.waiting()
        if problem:
            self._session.fail("device_time", RuntimeError(problem))

    def finish(self) -> None:
        """Read all times; the recording ends."""
        if self._spans is not None:
            self._read(wait=False)
            if self._spans.waiting():
                self._read(wait=True)
        if not self._count:
            self._session.emit(RecorderLimited, "device_time", NO_DEVICE)
