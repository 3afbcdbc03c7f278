"""The kinds of live tensors: parameters, gradients, state of optimizers, and others."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import torch

from autogradviz.recorder.backward.training_steps import live_optimizers, parameters_of
from autogradviz.recorder.torch_internals.graph_owners import gradient_of, live_tensors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.events import HeldAs

_DEEPEST = 4  # containers in the state of an optimizer


class LiveTensors:
    """The tensors that Python objects hold, by what they are, and the live optimizers.

    It holds them: drop it before the program continues.
    """

    def __init__(self) -> None:
        self.optimizers = live_optimizers()
        tensors = live_tensors()
        parameters: list[torch.Tensor] = [
            each for each in tensors if isinstance(each, torch.nn.Parameter)
        ]
        for optimizer in self.optimizers:
            parameters += parameters_of(optimizer)
        states = chain.from_iterable(map(state_of, self.optimizers))
        self.by_kind: tuple[tuple[HeldAs, list[torch.Tensor]], ...] = (
            ("parameter", parameters),
            ("optimizer state", list(states)),
            ("other", tensors),
        )


def live_gradients() -> list[torch.Tensor]:
    """Return the gradients of all leaves; no other thread may write gradients meanwhile."""
    gradients = map(gradient_of, live_tensors())
    return [each for each in gradients if each is not None]


def state_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Return the tensors in the state of an optimizer."""
    return list(_tensors_in(vars(optimizer).get("state"), _DEEPEST))


def _tensors_in(value: Any, depth: int) -> Iterator[torch.Tensor]:
    if issubclass(type(value), torch.Tensor):
        yield value
    elif depth and issubclass(type(value), dict):
        for each in list(dict.values(value)):
            yield from _tensors_in(each, depth - 1)
    elif depth and type(value) in {list, tuple}:
        for each in list(value):
            yield from _tensors_in(each, depth - 1)
