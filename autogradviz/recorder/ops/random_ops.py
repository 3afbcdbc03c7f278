"""Operators that draw random numbers, and the generators that they draw from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from autogradviz.events import RandomDrawn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.recorder.session import Session

_RATES: Final = {"dropout_p", "dropout"}  # nothing is drawn if the rate is 0
_SWITCHES: Final = {"train", "training"}
_NEVER_DRAW: Final = {
    "aten::_fused_sdp_choice",  # tagged, but only chooses a kernel
    "aten::_scaled_dot_product_flash_attention_for_cpu",  # tagged, but raises if it should drop
}


class Draw(NamedTuple):
    """The arguments that decide whether an operator draws random numbers."""

    generator: tuple[int, str] | None  # position and keyword of that argument
    needed: tuple[tuple[int, str], ...]  # it draws only if none of these arguments is zero

    def source(self, args: Sequence[Any], kwargs: dict[str, Any]) -> str | None:
        """Return the generator that a call draws from, "default" or "given"; None if none."""
        if not all(_argument(place, args, kwargs) for place in self.needed):
            return None
        given = self.generator and _argument(self.generator, args, kwargs)
        return "default" if given is None else "given"


def _argument(place: tuple[int, str], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    position, keyword = place
    return args[position] if position < len(args) else kwargs.get(keyword)


def read_draw(func: Any, schema: Any) -> Draw | None:
    """Return the arguments that control an operator's draws, None if it never draws."""
    if torch.Tag.nondeterministic_seeded not in func.tags or schema.name in _NEVER_DRAW:
        return None
    rates = {*_RATES, "p"} if "dropout" in schema.name else _RATES
    places = {argument.name: (at, argument.name) for at, argument in enumerate(schema.arguments)}
    needed = [place for name, place in places.items() if name in rates | _SWITCHES]
    return Draw(places.get("generator"), tuple(needed))


def emit_draw(
    draw: Draw, session: Session, args: Any, kwargs: Any, row: tuple[Any, ...], result: Any
) -> None:
    """Record that an op drew random numbers, if it did.

    Args:
        draw: of the operator.
        session: of the recording.
        args: its positional arguments.
        kwargs: its keyword arguments.
        row: of its ``OpCalled``.
        result: of the op.
    """
    source = draw.source(args, kwargs)
    drawn = result[0] if isinstance(result, tuple) else result
    if source is not None and isinstance(drawn, torch.Tensor):
        seq, _, thread, stack_id, name, *_ = row
        device = str(drawn.device)
        session.emit(RandomDrawn, name, seq, source, device, stack_id=stack_id, thread=thread)
