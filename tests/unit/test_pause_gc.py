"""The garbage collector is paused, and its state is restored."""

from __future__ import annotations

import gc
import weakref

import pytest

from autogradviz.support import locks_gc_and_stderr as process
from autogradviz.support.locks_gc_and_stderr import collector_paused, collector_waiting


class Ring:
    def __init__(self):
        self.itself = self


@pytest.fixture
def no_frozen_objects(monkeypatch):
    gc.unfreeze()  # Python 3.12 begins with frozen objects of its own
    monkeypatch.setattr(process, "_was_frozen", False)
    yield
    gc.unfreeze()
    gc.enable()


def test_garbage_is_collected_only_after_the_pause(no_frozen_objects):
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


def test_objects_created_during_the_pause_are_in_the_oldest_generation(no_frozen_objects):
    with collector_paused():
        built = [[] for _ in range(1_000)]
    young = {id(each) for each in [*gc.get_objects(0), *gc.get_objects(1)]}
    assert not young & {id(each) for each in built}


def test_garbage_from_before_the_pause_is_collected_first(no_frozen_objects):
    known = weakref.ref(Ring())
    with collector_paused():
        assert known() is None


def test_collector_state_is_restored_also_after_an_exception(no_frozen_objects):
    with pytest.raises(ValueError, match="inside"), collector_paused():
        raise ValueError("inside")
    assert gc.isenabled()
    gc.disable()
    with collector_paused():
        pass
    assert not gc.isenabled()


def test_objects_frozen_by_the_user_stay_frozen(no_frozen_objects):
    frozen = [[]]
    gc.freeze()
    with collector_paused():
        pass
    assert gc.get_freeze_count() > 0
    assert not any(found is frozen for found in gc.get_objects())


def test_young_objects_stay_young_while_the_collector_waits(no_frozen_objects):
    young = [[]]
    with collector_waiting():
        assert not gc.isenabled()
    assert gc.isenabled()
    assert any(found is young for found in gc.get_objects(generation=0))


def test_waiting_keeps_a_disabled_collector_disabled(no_frozen_objects):
    gc.disable()
    with collector_waiting():
        pass
    assert not gc.isenabled()
