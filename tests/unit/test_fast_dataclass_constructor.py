"""Makers create the same instances as the constructor."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, dataclass, field, replace

import pytest

from autogradviz.events import EVENT_TYPES, field_names
from autogradviz.support.fast_dataclass_constructor import maker


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact(Base):
    name: str
    place: tuple[int, ...] = (1, 2)


def test_fast_instances_equal_those_of_the_constructor():
    made, own = maker(Fact)(seq=1, name="x"), Fact(seq=1, name="x")
    assert (made, type(made), hash(made), repr(made)) == (own, Fact, hash(own), repr(own))
    assert replace(made, seq=2) == Fact(seq=2, name="x")
    assert pickle.loads(pickle.dumps(made)) == own
    with pytest.raises(FrozenInstanceError):
        made.seq = 2
    with pytest.raises(FrozenInstanceError):
        del made.seq


def test_maker_accepts_the_arguments_of_the_class():
    with pytest.raises(TypeError, match="name"):
        maker(Fact)(seq=1)
    with pytest.raises(TypeError, match="color"):
        maker(Fact)(seq=1, name="x", color="red")
    assert maker(Fact)(1, "x", ()) == Fact(seq=1, name="x", place=())


def test_every_event_has_a_maker():
    for kind in EVENT_TYPES:
        row = tuple(range(len(field_names(kind))))
        named = dict(zip(field_names(kind), row, strict=True))
        assert maker(kind)(*row) == kind(**named)


@dataclass(slots=True)
class Late:
    items: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Checked:
    item: int

    def __post_init__(self):
        self.item += 1


@dataclass
class Loose:
    item: int


@pytest.mark.parametrize("kind", [Late, Checked, Loose])
def test_class_with_factories_checks_or_without_slots_has_no_maker(kind):
    with pytest.raises(TypeError, match="has a default factory"):
        maker(kind)
