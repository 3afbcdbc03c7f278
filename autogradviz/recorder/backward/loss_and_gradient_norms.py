"""Norms of losses, and of the gradients that leaves are left with.

Norms are read once, when the recording ends, in one pass over the gradients that still exist, so
that a NaN gradient is known without fingerprints. On the CPU, where a pass over a large model takes
time, only the smaller gradients are read; NaN reaches those too. With fingerprints all are read,
after each backward. Losses are copied when their backward starts and read with the gradients, so
that nothing waits for the device in between.
"""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from itertools import chain, takewhile
from math import isfinite
from operator import itemgetter
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.events import (
    NO_ID,
    GradientFound,
    LeafGradientRead,
    LocalGradientNormRead,
    LossDivisorRead,
    LossRead,
    NormRead,
    ParameterNormRead,
    RecorderLimited,
    StepNormRead,
)
from autogradviz.recorder.ops.hashes_norms_and_draws import (
    below_autograd,
    is_plain,
    number_of,
    readable,
    sum_and_norm,
)
from autogradviz.recorder.torch_internals.distributed import infers_shapes
from autogradviz.recorder.torch_internals.nodes import divisors_of
from autogradviz.recorder.torch_internals.private_api import DisableTorchFunction, foreach_norm
from autogradviz.recorder.torch_internals.wrapper_tensors import (
    NO_LAYOUT,
    completed_inner_tensor,
    layout_number,
    layout_of,
    version_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from autogradviz.events import Place
    from autogradviz.recorder.engine_interface import TensorIds
    from autogradviz.recorder.leaf_tensors_and_versions import LeafTable
    from autogradviz.recorder.session import Session

    # Backward, tensor, place, what is read, and the layout if that is the part of a ``DTensor``.
    Reading = tuple[int, int, Place, torch.Tensor, int]
    Norms = Sequence[Any]  # numbers, or tensors of one number
    # Backward, tensor, the loss: a number, or a copy if that is complex or on a device.
    Loss = tuple[int, int, torch.Tensor | float]

MAX_BYTES: Final = 64_000_000  # of gradients on the CPU, the small ones first
_WIDER: Final = {torch.float64: torch.float64, torch.complex128: torch.float64}
"""The dtype in which norms are computed, if that is not float32."""
_WIDEST: Final = {
    torch.float32: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float16: torch.float64,
}
_SEVERAL_THREADS: Final = (
    "several threads that still run have called backward: norms of gradients are missing"
)
_EXHAUSTED: Final = (
    "the memory of a device was exhausted: norms of its losses and gradients are missing"
)
_OF_MATRIX: Final = 2  # dimensions
_FIRST: Final = 64  # entries of a frozen parameter, which are read before the others
MAX_LOSSES: Final = 100
"""Losses that are read at the end of a long recording."""


# NOTE [ Gradients of other threads ]
# The engine and ``leaf.grad = None`` write a gradient without the GIL, and reading it on another
# thread meanwhile crashes the process. So gradients are read only on the thread that calls the
# engine. If several threads do, they are read once all but one of these have ended.
# A thread that calls the engine may outlive a recording that another thread ends. It reads the
# norms after each backward, and the last ones are recorded if its gradients cannot be read at the
# end. Norms on a device are not waited for before that.


class GradientTable:
    """Reads the norms of losses and of the gradients of leaves."""

    def __init__(self, session: Session, tensors: TensorIds, leaves: LeafTable) -> None:
        self._session = session
        self._intern = tensors.intern
        self._leaves = leaves
        self._emit_norm = session.emitter(NormRead)
        self._losses: list[Loss] = []
        self._newest_losses: deque[Loss] = deque(maxlen=MAX_LOSSES)
        self._losses_of_step: list[tuple[int, int, float]] = []
        self.reads_devices = True
        """Tensors on devices are read; False once the memory of one is exhausted."""
        self.reached: dict[int, int] = {}
        """By leaf, the last backward that accumulated into it."""
        self.sharded: dict[int, int] = {}
        """By the leaf of a whole parameter, the parameter that gets this rank's part."""
        self._callers: set[int] = set()  # threads that called the engine
        self._ever_reached: set[int] = set()  # leaves whose norms were read
        self._zeros: set[int] = set()  # leaves of which the last gradient that was read is zero
        self._values_read: set[int] = set()
        self._bytes_read = 0
        self._found: set[int] = set()  # leaves with a gradient that no backward left
        self._opener = get_ident()  # the thread that probably ends the recording
        self._held: dict[int, tuple[int, torch.Tensor | float | None, int] | None] = {}
        """By leaf, the last backward on another thread, the norm that it left, and the layout of a
        ``DTensor``; None if it left no gradient, or one that is too large."""
        engine = session.engine
        self._ordinary_nbytes = engine.ordinary_nbytes
        self._norm = engine.norm
        self._read_number = engine.read_number
        self._last_reached = NO_ID  # the last leaf of those whose norms were read

    def engine_called(self) -> None:
        """Note that this thread calls the engine."""
        self._callers.add(get_ident())

    def may_read(self) -> bool:
        """Return whether no other thread may write gradients.

        See NOTE [ Gradients of other threads ].
        """
        own = {get_ident()}
        if not self._callers <= own:
            self._callers.intersection_update(sys._current_frames())  # noqa: SLF001 - those alive
        return self._callers <= own

    def copy_losses(self, backward_id: int, outputs: Sequence[Any]) -> None:
        """Read the scalars at which a backward starts; copy those on a device, without waiting."""
        if infers_shapes():
            return
        for root in outputs:
            if not isinstance(root, torch.Tensor):
                continue
            if is_plain(root):
                number = self._read_number(root)
                if number is not None:
                    self._add_loss((backward_id, self._intern(root), number))
                    self._read_divisors(backward_id, root)
                    continue
            with DisableTorchFunction(), below_autograd():
                if not readable(root):
                    self._session.could_not_read("losses", root)
                elif root.numel() == 1:
                    is_number = root.is_cpu and not root.is_complex()
                    loss = float(root.item()) if is_number else root.clone()
                    self._add_loss((backward_id, self._intern(root), loss))
                    self._read_divisors(backward_id, root)

    def _read_divisors(self, backward_id: int, loss: torch.Tensor) -> None:
        """Record the tensors of one number that a loss was divided by."""
        with DisableTorchFunction(), below_autograd():
            for each in divisors_of(loss) if is_plain(loss) else ():
                number = number_of(each)
                if number is not None and isfinite(number):
                    self._session.emit(LossDivisorRead, backward_id, self._intern(each), number)

    def _add_loss(self, found: Loss) -> None:
        """Add a loss, to those of the step too if it is a number."""
        self._losses.append(found)
        self._newest_losses.append(found)
        backward_id, tensor_id, loss = found
        if isinstance(loss, float):
            self._losses_of_step.append((backward_id, tensor_id, loss))

    def losses_after(self, backward_id: int) -> list[Loss]:
        """Return the losses of backwards with larger ids."""
        newer = takewhile(lambda loss: loss[0] > backward_id, reversed(self._newest_losses))
        return list(newer)[::-1]

    def read_losses(self) -> None:
        """Record the losses of a step that has ended, if they are on the CPU."""
        losses, self._losses_of_step = self._losses_of_step, []
        if not losses:
            return
        for backward_id, tensor_id, loss in losses:
            known = loss if isfinite(loss) else None
            self._session.emit(LossRead, backward_id, tensor_id, known)

    def read_step_norms(self, first_backward_id: int) -> int:
        """Record the norms of the gradients on the CPU that the backwards of a step reached.

        Args:
            first_backward_id: the first backward of the step.

        Returns:
            The first backward of the next step.
        """
        newest = first_backward_id - 1
        for one, found in self.norms_since(first_backward_id, on_devices=False):
            norm = None if found is None else float(found)
            backward_id, tensor_id, _, _, layout = one
            newest = max(newest, backward_id)
            if layout == NO_LAYOUT:
                self._session.emit(StepNormRead, backward_id, tensor_id, norm)
            else:
                self._emit_local_norm(backward_id, tensor_id, layout, norm)
        return newest + 1

    def norms_since(
        self, first_backward_id: int, *, on_devices: bool
    ) -> list[tuple[Reading, torch.Tensor | float | None]]:
        """Return the gradients that backwards have reached, and their norms.

        Args:
            first_backward_id: the first of the backwards.
            on_devices: whether those on a device are among them: as tensors, without waiting.
        """
        with DisableTorchFunction(), below_autograd():
            newer = [
                one for one in self._gradients()
                if one[0] >= first_backward_id and (on_devices or one[3].is_cpu)
            ]  # fmt: skip
            return [
                (one, norm if _is_on_device(norm) else _checked(float(norm), one[3]))
                for group, norms in self._norms(newer)
                for one, norm in zip(group, norms, strict=True)
            ]

    def read_sums(self) -> None:
        """Record the sum and the norm of the gradient of each leaf, with ``record(norms=True)``."""
        if not self._session.with_norms or not self.may_read():
            return
        with DisableTorchFunction():
            for tensor_id in sorted(self._leaves.live_ids):
                leaf = self._leaves.get(tensor_id)
                gradient = None if leaf is None or not leaf.requires_grad else leaf.grad
                if gradient is None or not (gradient.is_cpu or self.reads_devices):
                    continue
                found = sum_and_norm(gradient)
                if found is not None:
                    self._session.emit(LeafGradientRead, tensor_id, *found)

    def hold_norms(self) -> None:
        """Read norms that the thread which ends the recording may be unable to read.

        Call it when the engine has returned; see NOTE [ Gradients of other threads ].
        """
        if get_ident() == self._opener or not self.may_read():
            return
        self._held = dict.fromkeys(self.reached)
        with DisableTorchFunction(), below_autograd():
            for group, norms in self._norms(self._gradients()):
                for one, norm in zip(group, norms, strict=True):
                    backward_id, tensor_id, _, gradient, layout = one
                    held = norm if _is_on_device(norm) else _checked(float(norm), gradient)
                    self._held[tensor_id] = (backward_id, held, layout)

    def read_norms(self) -> None:
        """Record the norms of losses, and of the gradients of the leaves that were reached."""
        with DisableTorchFunction(), below_autograd():
            copies: list[Reading] = []
            for backward_id, tensor_id, loss in self._losses:
                if isinstance(loss, float):
                    norm = abs(loss) if isfinite(loss) else None
                    self._emit_read(backward_id, tensor_id, "root", NO_LAYOUT, norm)
                else:
                    copies.append((backward_id, tensor_id, "root", loss, NO_LAYOUT))
            readings = [
                one for one in chain(copies, self._gradients())
                if one[3].is_cpu or self.reads_devices
            ]  # fmt: skip
            for group, norms in self._norms(readings):
                for one, read in zip(group, _numbers(norms), strict=True):
                    self._emit_read(*one[:3], one[4], _checked(read, one[3]))
            self._losses.clear()
            if not self.may_read():
                self._emit_held()
                return
        self._held.clear()
        self._last_reached = next(reversed(self.reached), self._last_reached)
        self._ever_reached.update(self.reached)
        self.reached.clear()

    def _emit_held(self) -> None:
        """Record the norms that another thread has read."""
        for tensor_id, held in self._held.copy().items():
            if held is not None:
                backward_id, norm, layout = held
                if self.reached.get(tensor_id, backward_id) != backward_id:
                    continue  # a thread that could not read it has reached it later
                known = None if norm is None or not isfinite(float(norm)) else float(norm)
                self._emit_read(backward_id, tensor_id, "gradient", layout, known)
            self.reached.pop(tensor_id, None)
            self._ever_reached.add(tensor_id)
        self._held.clear()

    def report_unread(self) -> None:
        """Record that norms are missing, if some could not be read; the recording ends."""
        if self.reached:
            self._session.emit(RecorderLimited, "gradients", _SEVERAL_THREADS)
        if not self.reads_devices:
            self._session.emit(RecorderLimited, "gradients", _EXHAUSTED)

    def _norms(self, readings: Iterable[Reading]) -> Iterator[tuple[Sequence[Reading], Norms]]:
        """Yield tensors with their norms; those on a device are not waited for."""
        groups = defaultdict[Any, list["Reading"]](list)
        ordinary: list[Reading] = []
        found: list[float] = []
        for one in readings:
            tensor = one[3]
            norm = self._norm(tensor)
            if norm is not None:
                ordinary.append(one)
                found.append(norm)
                continue
            groups[None if tensor.is_cpu else tensor.device, tensor.dtype].append(one)
        yield ordinary, found
        for (_, dtype), group in groups.items():
            tensors = [one[3] for one in group]
            if dtype.is_complex:
                tensors = [torch.view_as_real(tensor) for tensor in tensors]
            yield group, foreach_norm(tensors, 2, _WIDER.get(dtype, torch.float32))

    def _emit_read(
        self, backward_id: int, tensor_id: int, place: Place, layout: int, norm: float | None
    ) -> None:
        (self._zeros.add if norm == 0 and place == "gradient" else self._zeros.discard)(tensor_id)
        if layout == NO_LAYOUT:
            thread = self._session.threads.local.state.number
            self._emit_norm(thread, None, backward_id, tensor_id, place, norm)
        else:
            self._emit_local_norm(backward_id, tensor_id, layout, norm)

    def _emit_local_norm(
        self, backward_id: int, tensor_id: int, layout: int, norm: float | None
    ) -> None:
        placements = layout_of(layout).placements
        self._session.emit(LocalGradientNormRead, backward_id, tensor_id, placements, norm)

    def find_gradients(self) -> None:
        """Record the leaves that have a gradient although no backward reached them."""
        if not self.may_read():
            return
        known = self._ever_reached | self._found | self.reached.keys()
        with DisableTorchFunction():
            for tensor_id in list(self._leaves.live_ids - known):
                leaf = self._leaves.get(tensor_id)
                if leaf is not None and leaf.requires_grad and leaf.grad is not None:
                    self._found.add(tensor_id)
                    self._session.emit(GradientFound, tensor_id)

    def read_parameters_of_zeros(self) -> None:
        """Record the norms of the leaves whose last gradient was zero; the recording ends."""
        with DisableTorchFunction(), below_autograd():
            for tensor_id in sorted(self._zeros):
                self._read_parameter(tensor_id)

    def read_frozen_zeros(self) -> None:
        """Record the norms of the frozen parameters of zeros; the recording ends."""
        with DisableTorchFunction(), below_autograd():
            for tensor_id in sorted(self._leaves.live_ids):
                leaf = self._leaves.get(tensor_id)
                if (
                    isinstance(leaf, torch.nn.Parameter)
                    and leaf.ndim >= _OF_MATRIX
                    and not leaf.requires_grad
                    and leaf.is_cpu
                    and readable(leaf)
                    # A view of its first entries: else it is not read as a whole.
                    and not leaf[(slice(1),) * (leaf.ndim - 2) + (slice(_FIRST),) * 2].any()
                ):
                    self._read_parameter(tensor_id, frozen=True)

    def read_parameters(self) -> None:
        """Record the norms of the leaves, by which the replicas of several ranks are compared."""
        with DisableTorchFunction(), below_autograd():
            for tensor_id in sorted(self._leaves.live_ids):
                self._read_parameter(tensor_id)

    def _read_parameter(self, tensor_id: int, *, frozen: bool = False) -> None:
        """Record the norm of a leaf once, unless too many bytes were read."""
        leaf = self._leaves.get(tensor_id)
        if leaf is None or tensor_id in self._values_read:
            return
        if (
            leaf.requires_grad == frozen
            or not readable(leaf)
            or not (leaf.is_cpu or self.reads_devices)
        ):
            return
        self._bytes_read += leaf.nbytes if leaf.is_cpu else 0
        if self._bytes_read <= MAX_BYTES:
            self._values_read.add(tensor_id)
            norm = float(torch.linalg.vector_norm(leaf, 2, dtype=_WIDEST.get(leaf.dtype)))
            known = norm if isfinite(norm) else None
            self._session.emit(ParameterNormRead, tensor_id, known)

    def reached_parameters(self, known: AbstractSet[int], more: AbstractSet[int]) -> set[int]:
        """Return the live parameters that backwards reached, without the known ones.

        A leaf that is a plain tensor in an attribute of a module counts as one.
        """
        reached = chain(list(self.reached), self._ever_reached)
        found = {each for each in reached if each not in known and each not in more}
        in_modules = self._leaves.in_modules
        return {
            tensor_id
            for tensor_id in found
            if (leaf := self._leaves.get(tensor_id)) is not None
            and (isinstance(leaf, torch.nn.Parameter) or tensor_id in in_modules)
            and leaf.requires_grad
        }

    def newest_leaf(self) -> torch.Tensor | None:
        """Return the leaf that a backward reached last, if it lives."""
        return self._leaves.get(next(reversed(self.reached), self._last_reached))

    def newest_gradient(self) -> tuple[int, int] | None:
        """Return the address and version of that leaf's gradient, None if it has none."""
        if not self.may_read():
            return None
        with DisableTorchFunction():
            leaf = self.newest_leaf()
            gradient = None if leaf is None else leaf.grad
            return None if gradient is None else (id(gradient), version_of(gradient))

    def prune(self) -> None:
        """Forget dead leaves, and all but the newest losses."""
        for tensor_id in list(self.reached):
            if self._leaves.get(tensor_id) is None:
                self.reached.pop(tensor_id, None)
                self._held.pop(tensor_id, None)
        self._zeros &= self._leaves.live_ids
        del self._losses[:-MAX_LOSSES]
        del self._losses_of_step[:-MAX_LOSSES]

    @property
    def loss_ids(self) -> set[int]:
        """The tensor ids of the losses whose norms are not read yet."""
        return {tensor_id for _, tensor_id, *_ in self._losses}

    def _gradient_of(self, tensor_id: int) -> tuple[int, torch.Tensor | None]:
        """Return the leaf whose ``.grad`` a backward to a leaf sets, and that gradient."""
        leaf = self._leaves.get(tensor_id)
        gradient = None if leaf is None else leaf.grad
        if gradient is None and tensor_id in self.sharded:
            return self._gradient_of(self.sharded[tensor_id])
        return tensor_id, gradient

    def _gradients(self) -> list[Reading]:
        if not self.may_read():
            return []
        found: list[tuple[int, Reading]] = []  # by bytes
        for tensor_id, backward_id in list(self.reached.items()):
            owner_id, gradient = self._gradient_of(tensor_id)
            if gradient is None:
                continue
            layout = NO_LAYOUT
            nbytes = self._ordinary_nbytes(gradient)
            if not nbytes:
                local = completed_inner_tensor(gradient)
                if local is not None:
                    layout, gradient = layout_number(gradient), local
                    nbytes = self._ordinary_nbytes(gradient)
            if nbytes or readable(gradient):
                one: Reading = (backward_id, owner_id, "gradient", gradient, layout)
                found.append((nbytes or gradient.nbytes, one))
            else:
                self._session.could_not_read("norms", gradient)
        found.sort(key=itemgetter(0))
        everything = self._session.with_fingerprints
        if everything or sum([nbytes for nbytes, _ in found]) <= MAX_BYTES:
            return [one for _, one in found]
        taken, read = [], 0
        for nbytes, one in found:
            read += nbytes if one[3].is_cpu else 0
            if read <= MAX_BYTES:
                taken.append(one)
        return taken


def _numbers(norms: Norms) -> Sequence[float]:
    """Return norms as numbers; waits for the device that has them."""
    if not norms or not _is_on_device(norms[0]):
        return [float(norm) for norm in norms]
    # A stack waits for the device once; on the host it costs more than it saves.
    found: list[float] = torch.stack(list(norms)).tolist()
    return found


def _is_on_device(norm: Any) -> bool:
    return isinstance(norm, torch.Tensor) and not norm.is_cpu


def _checked(norm: float, tensor: torch.Tensor) -> float | None:
    """Return a norm, computed in float64 if it is not finite; None if an entry is not finite."""
    if isfinite(norm):
        return norm
    if bool(torch.isfinite(tensor).all()):
        real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        norm = float(torch.linalg.vector_norm(real, 2, dtype=torch.float64))
    return norm if isfinite(norm) else None
