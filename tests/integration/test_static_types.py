"""Methods of types of C, which are replaced during a recording on an accelerator."""

import gc

import pytest
import torch

from autogradviz.recorder.torch_internals.patches import patched_type


class Derived(torch.Event):
    pass


@pytest.mark.parametrize("kind", [torch.Event, Derived])
def test_methods_of_a_type_of_c_are_replaced_and_restored(kind):
    event, before = kind.__new__(kind), dict(vars(torch.Event))

    def call():
        return event.query()

    def ours(self):
        return self

    plain = call()
    for _ in range(20):  # so that Python has specialized the call
        with patched_type(torch.Event, query=ours):
            assert {id(call()) for _ in range(20)} == {id(event)}
            gc.collect()
        assert {call() for _ in range(20)} == {plain}
    assert dict(vars(torch.Event)) == before
