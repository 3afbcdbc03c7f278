"""Live objects of a type are found, and threads that build tuples meanwhile are not disturbed."""

import sys
import threading

import pytest

from autogradviz.support.live_objects import live_objects


class Kind:
    pass


class Below(Kind):
    pass


def test_objects_of_exactly_the_types_given_are_found():
    one, other = Kind(), Below()
    assert live_objects([Kind]) == [one]
    assert {id(each) for each in live_objects([Kind, Below])} == {id(one), id(other)}


@pytest.fixture
def tuples():
    """Build tuples in another thread, which the collector tracks unfinished; yield its errors."""
    interval, errors, ended = sys.getswitchinterval(), [], threading.Event()

    def build():
        while not ended.is_set():
            try:
                tuple([number] for number in range(30))
            except SystemError as error:
                errors.append(error)

    thread = threading.Thread(target=build)
    sys.setswitchinterval(1e-6)
    thread.start()
    yield errors
    ended.set()
    thread.join()
    sys.setswitchinterval(interval)


@pytest.mark.ci(reason="a stress test of threads")
def test_tuples_of_other_threads_are_not_disturbed(tuples):
    kept = Kind()
    for _ in range(30):
        assert live_objects([Kind]) == [kept]
    assert tuples == []
