"""Checkpointed regions in an experiment: followed, or without recomputation."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import torch.utils.checkpoint

from autogradviz.recorder.torch_internals.patches import patched
from autogradviz.recorder.torch_internals.private_api import CHECKPOINT_GENERATOR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager


class Region(Protocol):
    """The forward of one checkpointed region, and its recomputations."""

    def leave(self) -> None:
        """Note that the forward has ended."""

    def again(self) -> AbstractContextManager[None]:
        """Return a context that is open during a recomputation."""


@contextmanager
def followed(enter: Callable[[], Region]) -> Iterator[None]:
    """Call a function when the forward of a region begins, which returns its ``Region``."""
    generator = vars(torch.utils.checkpoint)[CHECKPOINT_GENERATOR]
    reentrant = torch.utils.checkpoint.CheckpointFunction

    def run_region(function: Any, *args: Any, **kwargs: Any) -> Iterator[None]:
        region = enter()

        def run_again(*args: Any, **kwargs: Any) -> Any:
            with region.again():
                return function(*args, **kwargs)

        inner = generator(run_again, *args, **kwargs)
        try:
            next(inner, None)
            yield
        finally:
            region.leave()
        yield from inner

    class Reentrant:
        @staticmethod
        def apply(function: Any, *args: Any) -> Any:
            region: Region | None = None

            def run(*args: Any, **kwargs: Any) -> Any:
                nonlocal region
                if region is not None:
                    with region.again():
                        return function(*args, **kwargs)
                region = enter()
                try:
                    return function(*args, **kwargs)
                finally:
                    region.leave()

            return reentrant.apply(run, *args)  # type: ignore[no-untyped-call]

    with _replaced(run_region, Reentrant):
        yield


@contextmanager
def uncheckpointed(is_chosen: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Let regions keep what they compute, as if they were not checkpointed.

    Args:
        is_chosen: called when a region begins; by default all are chosen.
    """
    generator = vars(torch.utils.checkpoint)[CHECKPOINT_GENERATOR]
    reentrant = torch.utils.checkpoint.CheckpointFunction

    def run_region(*args: Any, **kwargs: Any) -> Iterator[None]:
        if is_chosen():
            yield
        else:
            yield from generator(*args, **kwargs)

    class Reentrant:
        @staticmethod
        def apply(function: Any, preserve: Any, *args: Any) -> Any:
            if is_chosen():
                return function(*args)
            return reentrant.apply(function, preserve, *args)  # type: ignore[no-untyped-call]

    with _replaced(run_region, Reentrant):
        yield


@contextmanager
def _replaced(run_region: Any, reentrant: Any) -> Iterator[None]:
    ours = {CHECKPOINT_GENERATOR: run_region, "CheckpointFunction": reentrant}
    with patched(torch.utils.checkpoint, **ours):
        yield
