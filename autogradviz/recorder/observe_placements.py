"""Observe conversions of ``DTensor``: placements, and gradients that pass them."""

from __future__ import annotations

import functools
from contextlib import ExitStack, contextmanager
from math import isclose, sqrt
from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch

from autogradviz.events import (
    GradientPlacementsChanged,
    PlacementsChanged,
)
from autogradviz.recorder.ops.hashes_norms_and_draws import below_autograd, readable, sum_and_norm
from autogradviz.recorder.torch_internals.distributed import (
    conversion_functions,
    declared_gradient,
    distribute_function,
    infers_shapes,
    ranks_of_mesh,
)
from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_frame
from autogradviz.recorder.torch_internals.patches import patched, patched_in_all_modules
from autogradviz.recorder.torch_internals.private_api import DisableTorchFunction
from autogradviz.recorder.torch_internals.wrapper_tensors import (
    NO_LAYOUT,
    completed_inner_tensor,
    layout_number,
    layout_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from autogradviz.events import Conversion
    from autogradviz.recorder.engine_interface import TensorIds
    from autogradviz.recorder.session import Session


_READ_BYTES = 1 << 20
"""Parts up to this size on the CPU are read, so that ranks can be compared."""


class _Placements:
    """Records conversions in forward and in backward."""

    def __init__(self, session: Session, tensors: TensorIds) -> None:
        self._session = session
        self._tensors = tensors
        self._in_backward: set[int] = set()
        """The threads that run the backward of a conversion, which converts the gradient."""

    def converted(self, conversion: Conversion, ctx: Any, given: Any, result: Any) -> None:
        """Record a conversion; ``ctx`` is its node, None for ``distribute_tensor``."""
        if not isinstance(given, torch.Tensor) or infers_shapes():
            return
        if get_ident() in self._in_backward:
            return
        with DisableTorchFunction():
            layouts = [layout_number(each) for each in (given, result)]
            known = next((layout_of(each) for each in layouts if each != NO_LAYOUT), None)
            if known is None:
                return
            declared: tuple[tuple[str, ...], bool] = ((), False)
            number = None
            if ctx is not None:
                declared = declared_gradient(ctx, conversion)
                number = ctx._sequence_nr() if ctx.needs_input_grad[0] else None  # noqa: SLF001
            total, norm, _ = _content(given)
            ranks: tuple[int, ...] = ()
            if known.mesh_coordinates:  # there are none where one process plays all ranks
                with below_autograd():
                    ranks = ranks_of_mesh(result if layouts[0] == NO_LAYOUT else given)
            self._session.emit(
                PlacementsChanged,
                conversion,
                self._tensors.intern(given),
                self._tensors.intern(result),
                _placements(layouts[0]),
                _placements(layouts[1]),
                *declared,
                known.mesh_shape,
                ranks,
                known.mesh_coordinates,
                number,
                total,
                norm,
                stack_id=self._session.stack_id(),
            )

    def reached(self, conversion: Conversion, ctx: Any, gradient: Any) -> tuple[Any, ...] | None:
        """Return the facts about the gradient that a node received, None if it is none."""
        if not isinstance(gradient, torch.Tensor) or infers_shapes():
            return None
        self._in_backward.add(get_ident())
        with DisableTorchFunction():
            received = _placements(layout_number(gradient))
            return conversion, ctx._sequence_nr(), received, *_content(gradient)  # noqa: SLF001

    def left_backward(self) -> None:
        """Note that this thread has left the backward of a conversion."""
        self._in_backward.discard(get_ident())

    def passed_on(self, found: tuple[Any, ...], result: Any) -> None:
        """Record the gradient that a node received, and the placements of what it returned."""
        conversion, number, received, total, norm, is_constant = found
        gradient = result[0] if isinstance(result, tuple) else result
        with DisableTorchFunction():
            passed = _placements(layout_number(gradient))
        self._session.emit(
            GradientPlacementsChanged,
            conversion, number, received, passed, total, norm, is_constant,
            stack_id=self._session.stack_id(),
        )  # fmt: skip


def _placements(layout: int) -> tuple[str, ...]:
    return () if layout == NO_LAYOUT else layout_of(layout).placements


def _content(tensor: torch.Tensor) -> tuple[float | None, float | None, bool]:
    """Return the sum and norm of a part, and whether its entries are equal."""
    part = completed_inner_tensor(tensor)
    part = tensor if part is None else part
    if not part.is_cpu or not readable(part) or part.nbytes > _READ_BYTES:
        return None, None, False
    total, norm = sum_and_norm(part) or (None, None)
    if total is None or norm is None:
        return total, norm, False
    # Only of equal entries is the sum as large as the norm allows.
    return total, norm, isclose(abs(total), norm * sqrt(part.numel()), rel_tol=1e-6)


@contextmanager
def observe_placements(session: Session, tensors: TensorIds) -> Iterator[None]:
    """Record conversions while the context is open, if the program has imported ``DTensor``."""
    functions, distribute = conversion_functions(), distribute_function()
    if not functions:
        yield
        return
    table = _Placements(session, tensors)
    with ExitStack() as installed:
        for owner, conversion in functions:
            ours = {
                "forward": staticmethod(_forward(session, table, conversion, owner.forward)),
                "backward": staticmethod(_backward(session, table, conversion, owner.backward)),
            }
            installed.enter_context(patched(owner, **ours))
        if distribute is not None:
            wrapper = _distribute(session, table, distribute)
            installed.enter_context(
                patched_in_all_modules("distribute_tensor", distribute, wrapper)
            )
        yield


def _forward(
    session: Session, table: _Placements, conversion: Conversion, original: Callable[..., Any]
) -> Callable[..., Any]:
    @skip_frame
    @functools.wraps(original)
    def forward(ctx: Any, given: Any, *args: Any) -> Any:
        result = original(ctx, given, *args)
        session.guarded("placements", table.converted, conversion, ctx, given, result)
        return result

    return forward


def _backward(
    session: Session, table: _Placements, conversion: Conversion, original: Callable[..., Any]
) -> Callable[..., Any]:
    @skip_frame
    @functools.wraps(original)
    def backward(ctx: Any, gradient: Any) -> Any:
        found = session.guarded("placements", table.reached, conversion, ctx, gradient)
        try:
            result = original(ctx, gradient)
        finally:
            table.left_backward()
        if found is not None:
            session.guarded("placements", table.passed_on, found, result)
        return result

    return backward


def _distribute(
    session: Session, table: _Placements, original: Callable[..., Any]
) -> Callable[..., Any]:
    @skip_frame
    @functools.wraps(original)
    def distribute_tensor(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(tensor, *args, **kwargs)
        session.guarded("placements", table.converted, "distribute_tensor", None, tensor, result)
        return result

    return distribute_tensor
