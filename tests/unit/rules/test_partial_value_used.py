"""The rule about local parts of DTensors that are used before the ranks are added."""

from make_log import fact, op, tensor
from run_rule import lines, run_rule

from autogradviz.diagnose.rules.partial_values import partial_value_used
from autogradviz.events import CollectiveCalled, DistributedTensorSeen

PART = [
    tensor(1),
    tensor(2, storage=1),
    fact(
        DistributedTensorSeen, tensor_id=2, local_tensor_id=1, placements=("Partial(sum)",),
        mesh_names=("tp",), mesh_shape=(2,), mesh_coordinates=(0,),
    ),
]  # fmt: skip
REDUCED = fact(CollectiveCalled, op="c10d.allreduce_.default", group_name="0", tensor_ids=(1,))


def test_operator_that_is_not_linear_needs_the_sum():
    (found,) = run_rule(partial_value_used, PART, op("relu", (3,), inputs=(1,), at="net.py:5"))
    assert (found.slug, found.confidence) == ("partial-value-used", "likely")
    assert lines(found)[0] == "net.py:5"


def test_linear_operators_and_reduced_values_are_no_finding():
    relu = op("relu", (3,), inputs=(1,), at="net.py:5")
    assert run_rule(partial_value_used, PART, op("sum", (3,), inputs=(1,), at="net.py:5")) == []
    assert run_rule(partial_value_used, PART, REDUCED, relu) == []
