"""The digest of a step: a number that is equal for steps that call the same ops in the same order.

Ranks that should do the same are compared by it, so that the ops themselves need not be read. It is
a sum over the ops of a hash of name, phase and position, which does not depend on how ops of
several threads interleave. Positions are counted for each thread. C++ computes the same
(``Recording::digest`` in native/recording_state.h).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from autogradviz.recorder.thread_state import ThreadState

_BITS: Final = (1 << 64) - 1
_SIGN: Final = 1 << 63
_PHASES: Final = {"forward": 0, "backward": 1, "recompute": 2}
_NOT_COUNTED: Final = frozenset({"aten.detach.default", "aten.alias.default"})
"""PyTorch calls these for itself, and dispatch modes do not see all of the calls."""


class StepDigest:
    """The ops since the last step ended."""

    def __init__(self) -> None:
        self._hashes: dict[tuple[str, str], int] = {}  # by name and phase; 0 does not count
        self._step = 0
        self._ops = 0
        self._sum = 0

    def add(self, name: str, phase: str, state: ThreadState) -> None:
        """Add an op of a thread."""
        hashed = self._hashes.get((name, phase))
        if hashed is None:
            hashed = self._hashes[name, phase] = _hash(name, phase)
        if hashed:
            if state.step != self._step:
                state.step, state.step_ops = self._step, 0
            mixed = (hashed ^ (state.step_ops * 0x9E3779B97F4A7C15)) & _BITS
            mixed = (mixed * 0xBF58476D1CE4E5B9) & _BITS
            self._sum += mixed ^ (mixed >> 29)
            state.step_ops += 1
            self._ops += 1

    def take(self) -> tuple[int, int]:
        """Return the number and digest of the ops since the last call."""
        digest = self._sum & _BITS
        found = self._ops, digest - (_BITS + 1) if digest & _SIGN else digest
        self._ops = self._sum = 0
        self._step += 1
        return found


def _hash(name: str, phase: str) -> int:
    """Return the FNV-1a hash of an op's name and phase, 0 if it does not count."""
    if name in _NOT_COUNTED or name.startswith("profiler."):
        return 0
    found = 0xCBF29CE484222325
    for byte in f"{name}|{_PHASES[phase]}".encode():
        found = ((found ^ byte) * 0x100000001B3) & _BITS
    return found
