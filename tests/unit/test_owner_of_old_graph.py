"""The owner of an old graph is written as the program refers to it."""

import pytest
from make_log import fact, make_log

from autogradviz.analysis import Analysis
from autogradviz.diagnose.evidence.tensors_of_earlier_graph import owner_of_old_graph
from autogradviz.events import OldGraphHeld


@pytest.mark.parametrize(
    ("root", "path", "words"),
    [
        (
            "global history of module __main__",
            "list[0] > tuple[1] > Tensor.grad_fn > MulBackward0",
            "history[0][1] (global history of module __main__): Tensor.grad_fn > MulBackward0",
        ),
        (
            "local trainer of fit(), line 3",
            "Trainer.losses > dict['a'] > Tensor.grad_fn",
            "trainer.losses['a'] (local trainer of fit(), line 3): Tensor.grad_fn",
        ),
        (
            "global total of module __main__",
            "Tensor.grad_fn > AddBackward0",
            "global total of module __main__: Tensor.grad_fn > AddBackward0",
        ),
        ("class Cache", "list[0] > Tensor.grad_fn", "class Cache: list[0] > Tensor.grad_fn"),
    ],
)
def test_owner_is_written_as_an_expression_of_its_variable(root, path, words):
    held = fact(OldGraphHeld, node_name="Exp", sequence_nr=1, owner_root=root, owner_path=path)
    assert owner_of_old_graph(Analysis(make_log(held))) == (
        f"When the recording ended, Exp of an earlier step was kept alive by {words}."
    )
