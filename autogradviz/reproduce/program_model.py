"""A program that repeats a part of a recording: statements in bodies, and their values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis.types import SourceLocation, Tensor

SymptomKind: TypeAlias = Literal[
    "missing", "zero", "not finite", "finite value", "not finite value"
]
StatementKind: TypeAlias = Literal[
    "op", "backward", "checkpoint", "function", "hook", "pair", "disabled"
]
BodyKind: TypeAlias = Literal["main", "region", "forward", "backward", "hook", "pack", "unpack"]


@dataclass(eq=False, slots=True)
class Value:
    """A variable of the program: one tensor."""

    tensor: Tensor
    maker: Statement | None = None  # None for a tensor that the program begins with
    node_id: int | None = None  # the autograd node that its gradient flows to
    requires_grad: bool = False
    strides: tuple[int, ...] = ()  # () if it is contiguous
    is_view: bool = False  # the maker returned it from the same place in the same memory
    is_parameter: bool = False


@dataclass(eq=False, slots=True)
class Statement:
    """One statement, or the call of a function with bodies of its own."""

    kind: StatementKind
    seq: int = 0
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    op: str = ""  # "aten.mul.Tensor"
    arguments: str | None = None  # as in ``ArgumentsSeen``
    written: list[Value] = field(default_factory=list)
    sources: list[Value] = field(default_factory=list)  # outputs are the gradients of these
    through_data: bool = False  # the write did not count as one: ``x.data.mul_(2)``
    grad_off: bool = False
    failed: bool = False
    pairs: tuple[Statement, ...] = ()  # of saved-tensor hooks that were entered
    options: dict[str, object] = field(default_factory=dict)
    bodies: list[Body] = field(default_factory=list)
    location: SourceLocation | None = None
    twins: list[Statement] = field(default_factory=list)  # the same in a recomputation

    @property
    def key(self) -> tuple[str, str | None]:
        """The operator and its arguments."""
        return self.op, self.arguments


@dataclass(eq=False, slots=True)
class Body:
    """The statements of a function, or of the program itself."""

    kind: BodyKind
    statements: list[Statement] = field(default_factory=list)
    parameters: list[Value] = field(default_factory=list)
    returned: list[Value | None] = field(default_factory=list)
    saved: list[Value] = field(default_factory=list)  # by a custom Function
    dirty: list[Value] = field(default_factory=list)  # marked by a custom Function


@dataclass(frozen=True, slots=True, eq=False)
class Contrast:
    """Causes of a wrong gradient: the program runs with them and without.

    Without them, a write is left out, a checkpoint region is called as a function, and a pair of
    saved-tensor hooks is not entered.
    """

    causes: tuple[Statement, ...]
    shown: tuple[Value, str] | None = None
    """A leaf, and "grad" or "data", which differs; None if that is not known yet."""
    is_missing: bool = False  # it is None in the wrong run


@dataclass(eq=False, slots=True)
class Program:
    """A program, and what it lacks of the recording."""

    main: Body
    missing: list[str] = field(default_factory=list)
    symptoms: list[tuple[Value, SymptomKind]] = field(default_factory=list)
    """Tensors with what is wrong: with their gradients, or with themselves."""
    contrast: Contrast | None = None
    names: dict[str, str] = field(default_factory=dict)  # of custom Functions: recorded, ours

    def statements(self) -> Iterator[Statement]:
        """Yield all statements, those of a function after its call."""
        yield from statements_of(self.main)


def statements_of(body: Body) -> Iterator[Statement]:
    """Yield the statements of a body, those of a function after its call."""
    for statement in body.statements:
        yield statement
        for inner in statement.bodies:
            yield from statements_of(inner)
