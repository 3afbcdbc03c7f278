"""The garbage collector is paused, and goes on as it was."""

from __future__ import annotations

import gc
import weakref

import pytest

from autogradviz.pause_gc import collector_paused, collector_waiting


class Ring:
    def __init__(self):
        self.itself = self


@pytest.fixture
def thawed():
    assert gc.get_freeze_count() == 0
    yield
    gc.unfreeze()
    gc.enable()


def test_nothing_is_collected_meanwhile_and_all_of_it_later(thawed):
    with collector_paused():
        assert not gc.isenabled()
        known = weakref.ref(Ring())
        rings = [[] for _ in range(10_000)]
        assert known() is not None
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
    gc.collect()
    assert known() is None
    assert len(rings) == 10_000


def test_what_was_built_counts_as_old(thawed):
    with collector_paused():
        built = [[] for _ in range(1_000)]
    young = {id(each) for each in [*gc.get_objects(0), *gc.get_objects(1)]}
    assert not young & {id(each) for each in built}


def test_young_garbage_from_before_does_not_grow_old(thawed):
    known = weakref.ref(Ring())
    with collector_paused():
        assert known() is None


def test_it_goes_on_after_an_exception_and_stays_off_where_it_was_off(thawed):
    with pytest.raises(ValueError, match="inside"), collector_paused():
        raise ValueError("inside")
    assert gc.isenabled()
    gc.disable()
    with collector_paused():
        pass
    assert not gc.isenabled()


def test_objects_frozen_by_the_user_stay_frozen(thawed):
    gc.freeze()
    frozen = gc.get_freeze_count()
    with collector_paused():
        pass
    assert gc.get_freeze_count() == frozen


def test_while_it_waits_young_objects_stay_young(thawed):
    young = [[]]
    with collector_waiting():
        assert not gc.isenabled()
    assert gc.isenabled()
    assert any(found is young for found in gc.get_objects(generation=0))


def test_waiting_leaves_a_collector_off_that_was_off(thawed):
    gc.disable()
    with collector_waiting():
        pass
    assert not gc.isenabled()
