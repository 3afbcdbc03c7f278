"""The meaning of event fields: which definition it refers to, and whether it is private.

A field states its meaning in its type. ``TensorId`` is ``Annotated[int, ref("tensor")]``; at run
time and in the file format it is an ``int``. The flight recorder, the module filter and redaction
derive their rules from these marks, so none of them lists fields by hand.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

Target: TypeAlias = Literal[
    "arguments", "backward", "call", "compiled_region", "event", "exec_group", "frame", "hook",
    "hook_pair", "module", "node", "object", "op", "recompute", "region", "saved", "stack",
    "storage", "tensor",
]  # fmt: skip
"""The kind of definition that an id refers to."""

Privacy: TypeAlias = Literal["source", "path", "value"]
"""The content of a private field: source text, a path, or the value of a variable."""


@dataclass(frozen=True)
class Ref:
    """Mark of a field that holds ids."""

    target: Target


@dataclass(frozen=True)
class Private:
    """Mark of a field that quotes what belongs to the user."""

    privacy: Privacy


def ref(target: Target) -> Ref:
    """Return the mark of an id, or of a tuple of ids."""
    return Ref(target)


def private_text(privacy: Privacy) -> Private:
    """Return the mark of a field whose content redaction replaces."""
    return Private(privacy)


ArgumentsId: TypeAlias = Annotated[int, ref("arguments")]
BackwardId: TypeAlias = Annotated[int, ref("backward")]
CallId: TypeAlias = Annotated[int, ref("call")]
CompiledRegionId: TypeAlias = Annotated[int, ref("compiled_region")]
EventSeq: TypeAlias = Annotated[int, ref("event")]
ExecGroupId: TypeAlias = Annotated[int, ref("exec_group")]
FrameId: TypeAlias = Annotated[int, ref("frame")]
HookId: TypeAlias = Annotated[int, ref("hook")]
HookPairId: TypeAlias = Annotated[int, ref("hook_pair")]
ModuleId: TypeAlias = Annotated[int, ref("module")]
NodeId: TypeAlias = Annotated[int, ref("node")]
ObjectId: TypeAlias = Annotated[int, ref("object")]
OpSeq: TypeAlias = Annotated[int, ref("op")]
RecomputeId: TypeAlias = Annotated[int, ref("recompute")]
RegionId: TypeAlias = Annotated[int, ref("region")]
SavedId: TypeAlias = Annotated[int, ref("saved")]
StackId: TypeAlias = Annotated[int, ref("stack")]
StorageId: TypeAlias = Annotated[int, ref("storage")]
TensorId: TypeAlias = Annotated[int, ref("tensor")]

FilePath: TypeAlias = Annotated[str, private_text("path")]
SourceText: TypeAlias = Annotated[str, private_text("source")]
ValueText: TypeAlias = Annotated[str, private_text("value")]
ValueNumber: TypeAlias = Annotated[float, private_text("value")]


@dataclass(frozen=True)
class Reference:
    """A field of an event that holds ids."""

    name: str
    place: int  # in the event's rows
    target: Target
    many: bool  # a tuple of ids


@dataclass(frozen=True)
class Traits:
    """Rules by which a kind of event is kept, filtered and redacted; see ``event``."""

    defines: tuple[str, ...]
    lasting: bool
    in_every_module: bool
    private: bool
    references: tuple[Reference, ...]
    privacy: tuple[Privacy | None, ...]  # of each field, in the order of the rows


_TRAITS: Final[dict[type[Any], Traits]] = {}


def event(
    *, defines: tuple[str, ...] = (), lasting: bool = False, in_every_module: bool = False,
    private: bool = False,
) -> Callable[[type[T]], type[T]]:  # fmt: skip
    """Register a dataclass as a kind of event.

    Args:
        defines: the fields that identify what a definition defines. A flight recorder keeps a
            definition while an event that it keeps refers to the id; where the fields hold no id,
            it keeps the newest definition of each value.
        lasting: a flight recorder never drops the event.
        in_every_module: a module filter keeps the event whatever it refers to.
        private: redaction removes the event.
    """

    def register(kind: type[T]) -> type[T]:
        hints = get_type_hints(kind, include_extras=True)
        marks = {field.name: tuple(_marks_in(hints[field.name])) for field in fields(kind)}  # type: ignore[arg-type]
        _TRAITS[kind] = Traits(
            defines=defines,
            lasting=lasting,
            in_every_module=in_every_module,
            private=private,
            references=tuple(
                Reference(name, place, mark.target, get_origin(hints[name]) is tuple)
                for place, name in enumerate(marks)
                for mark in marks[name]
                if isinstance(mark, Ref)
            ),
            privacy=tuple(
                next((mark.privacy for mark in found if isinstance(mark, Private)), None)
                for found in marks.values()
            ),
        )
        return kind

    return register


def _marks_in(hint: Any) -> Iterator[Any]:
    if get_origin(hint) is Annotated:
        yield from hint.__metadata__
    for part in get_args(hint):
        yield from _marks_in(part)


def registered() -> tuple[type[Any], ...]:
    """Return all kinds of events, in the order of their definition."""
    return tuple(_TRAITS)


def traits(kind: type[Any]) -> Traits:
    """Return the rules by which a kind of event is kept, filtered and redacted."""
    return _TRAITS[kind]
