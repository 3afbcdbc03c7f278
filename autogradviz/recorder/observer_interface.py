"""The interface between a recording and the hooks that observe PyTorch for it.

``PythonObserver`` installs hooks written in Python. Another observer may emit the same events by
other means; the recording and its retention policy use this interface only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet
    from contextlib import ExitStack

    import torch

    from autogradviz.events.field_types import Target
    from autogradviz.recorder.engine.loss_and_gradient_norms import GradientTable
    from autogradviz.recorder.engine.training_steps import StepTable


class Observer(Protocol):
    """Observes PyTorch for one session and emits its events."""

    @property
    def steps(self) -> StepTable:
        """The training steps."""

    @property
    def gradients(self) -> GradientTable:
        """The losses and gradients."""

    @property
    def saved_count(self) -> int:
        """The number of saved tensors so far, which is the id of the next one."""

    def install(self) -> ExitStack:
        """Install every hook, or none if one fails; return the context that removes them."""

    def can_remove(self) -> bool:
        """Return whether the hooks can be removed now: no dispatch mode was entered later."""

    def name_modules(self, model: torch.nn.Module) -> None:
        """Take the names of modules and parameters from a model."""

    def finish(self, error: BaseException | None) -> None:
        """Record graphs that no backward entered, gradient norms, and the exception.

        Args:
            error: the exception that is leaving the recorded block, or None.
        """

    def walk(self, roots: list[Any]) -> None:
        """Record the graphs of some nodes."""

    def untag(self, roots: Iterable[Any]) -> None:
        """Remove the tags that ``walk`` attached to nodes."""

    def close(self) -> None:
        """Release all weak references."""

    def describe_again(self, seq: int) -> None:
        """Describe nodes again that were last described before an event, when they are used."""

    def prune_history(self, first_seq: int, first_saved_id: int) -> None:
        """Forget the ops, writes and regions before an event, and older saves through hooks."""

    def prune(
        self, tensors: AbstractSet[int], first_seq: int, first_saved_id: int
    ) -> dict[Target, AbstractSet[int]]:
        """Forget everything dead.

        Args:
            tensors: ids of tensors that events refer to.
            first_seq: the oldest event of the passing kinds that is kept.
            first_saved_id: the oldest save that is kept.

        Returns:
            The ids that may be used again.
        """
