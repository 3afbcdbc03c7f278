"""Random numbers: which operators draw them, and from whose generator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from autogradviz.events import RandomDrawn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.recorder.recorder import Recorder

_RATES: Final = {"dropout_p", "dropout"}  # of 0: nothing is drawn
_SWITCHES: Final = {"train", "training"}
_NEVER_DRAW: Final = {"aten::_fused_sdp_choice"}  # it is tagged, but only chooses a kernel


class Draw(NamedTuple):
    """How an operator that may draw random numbers is told whether to, and from where."""

    generator: tuple[int, str] | None  # position and keyword of that argument
    needed: tuple[tuple[int, str], ...]  # arguments of which none is zero where it draws

    def source(self, args: Sequence[Any], kwargs: dict[str, Any]) -> str | None:
        """Return "default" or "given", by the generator that a call draws from; None without."""
        if not all(_argument(place, args, kwargs) for place in self.needed):
            return None
        given = self.generator and _argument(self.generator, args, kwargs)
        return "default" if given is None else "given"


def _argument(place: tuple[int, str], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    position, keyword = place
    return args[position] if position < len(args) else kwargs.get(keyword)


def read_draw(func: Any, schema: Any) -> Draw | None:
    """Return how an operator draws random numbers, None where it never does."""
    if torch.Tag.nondeterministic_seeded not in func.tags or schema.name in _NEVER_DRAW:
        return None
    rates = {*_RATES, "p"} if "dropout" in schema.name else _RATES
    places = {argument.name: (at, argument.name) for at, argument in enumerate(schema.arguments)}
    needed = [place for name, place in places.items() if name in rates | _SWITCHES]
    return Draw(places.get("generator"), tuple(needed))


def tell_draw(
    recorder: Recorder, draw: Draw, args: Any, kwargs: Any, row: tuple[Any, ...], result: Any
) -> None:
    """Record that an op drew random numbers, where it did.

    Args:
        recorder: who records.
        draw: of its operator.
        args: what it was called with.
        kwargs: by keyword.
        row: of its ``OpCalled``.
        result: what it gave.
    """
    source = draw.source(args, kwargs)
    drawn = result[0] if isinstance(result, tuple) else result
    if source is not None and isinstance(drawn, torch.Tensor):
        seq, _, thread, stack_id, name, *_ = row
        device = str(drawn.device)
        recorder.emit(RandomDrawn, name, seq, source, device, stack_id=stack_id, thread=thread)
