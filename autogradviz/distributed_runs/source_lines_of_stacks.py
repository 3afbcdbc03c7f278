"""Source lines of the stacks of one rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.event_log.stacks import Stacks

if TYPE_CHECKING:
    from autogradviz.event_log import Log

_FLAT: Final = "torch/distributed/fsdp/_flat_param.py"
_MODULE: Final = "torch/nn/modules/"
_PARTS: Final = ("torch/distributed/fsdp/", "torch/optim/", _MODULE)


class Lines(Stacks):
    """The stacks of one rank, which know what runs on parts of parameters."""

    def __init__(self, log: Log) -> None:
        """Prepare."""
        super().__init__(log)
        files = {each: self._locations[each].filename.replace("\\", "/") for each in self._library}
        self._parts = {frame_id: _part_of_torch(name) for frame_id, name in files.items()}
        self._has_flat_parameters = any(each.endswith(_FLAT) for each in files.values())

    def depends_on_shard(self, stack_id: int | None) -> bool:
        """Return whether FSDP1 or the optimizer called an op, on its part of a flat parameter.

        The parts of the ranks contain other parameters, and padding at their end, so that these ops
        differ between ranks that do the same.
        """
        if not self._has_flat_parameters:
            return False
        for frame_id in self._frame_ids.get(stack_id, ()):
            part = self._parts.get(frame_id, _MODULE)  # a frame of the user
            if part is not None:
                return part is not _MODULE
        return False


def _part_of_torch(filename: str) -> str | None:
    """Return the entry of ``_PARTS`` that a file belongs to."""
    return next((part for part in _PARTS if part in filename), None)
