"""Placements of DTensors and of their gradients, and what the values of ranks refute."""

import subprocess
import sys
from pathlib import Path

import pytest
from interpreters import run_forked
from ranks import run_ranks

import autogradviz
from autogradviz.events import GradientPlacementsChanged, PlacementsChanged

pytestmark = pytest.mark.one_in(3, reason="starts ranks", in_ci=1)

PROGRAM = Path(__file__).with_name("dtensor_programs.py")
WRONG = {  # by program: the finding, and the comment on its line
    "label_missing": ("replicated-gradient-differs", "# activation"),
    "counted_twice": ("gradient-times-mesh-size", "# counted"),
    "reduced_twice": ("gradient-times-mesh-size", "# twice"),
    "partial_read": ("partial-value-used", "# partial"),
    "partial_used": ("partial-value-used", "# unreduced"),
    "lost": ("gradient-missing", "# lost"),
    "new_leaf": ("gradient-missing", "# leaf"),
}
RIGHT = ("label_given", "counted_once", "partial_reduced", "averaged_by_hand")
TWO_DIMENSIONS = {
    "half_reduced": ("replicated-gradient-differs", "# half"),
    "both_reduced": None,
}
SLUGS = {slug for slug, _ in WRONG.values()} - {"gradient-missing"} | {"replicated-value-differs"}


def record(folder, world, names):
    ended = run_ranks(str(PROGRAM), str(folder), *names, world=world, env={"MASTER_PORT": "0"})
    assert [rank.code for rank in ended] == [0] * world, "\n".join(rank.err for rank in ended)


def findings(folder):
    return [found.finding for found in autogradviz.load(folder).diagnose()]


@pytest.fixture(scope="module")
def runs(built, tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    record(folder, 2, [*WRONG, *RIGHT])
    return folder


@pytest.mark.parametrize("name", WRONG)
def test_wrong_placements_are_found_with_their_line(runs, name):
    slug, comment = WRONG[name]
    found = [each for each in findings(runs / name) if each.slug == slug and each.culprit]
    assert comment in [f"# {each.culprit.text.partition('# ')[2]}" for each in found]


@pytest.mark.parametrize("name", RIGHT)
def test_right_placements_have_no_finding(runs, name):
    assert not SLUGS & {each.slug for each in findings(runs / name)}


def test_conversions_have_the_placements_of_values_and_gradients(runs):
    log = autogradviz.load(runs / "label_given").trace(1).log
    call = next(e for e in log.of(PlacementsChanged) if e.has_given_placements)
    assert (call.conversion, call.placements, call.result_placements) == (
        "to_local", ("Replicate()",), (),
    )  # fmt: skip
    assert (call.gradient_placements, call.mesh_ranks, call.mesh_coordinates) == (
        ("Partial(sum)",), (0, 1), (1,),
    )  # fmt: skip
    passed = next(e for e in log.of(GradientPlacementsChanged) if e.sequence_nr == call.sequence_nr)
    assert (passed.placements, passed.result_placements) == ((), ("Partial(sum)",))
    assert passed.norm > 0


@pytest.mark.parametrize("name", TWO_DIMENSIONS)
def test_reduction_over_one_of_two_mesh_dimensions(four_ranks, name):
    expected = TWO_DIMENSIONS[name]
    found = [each for each in findings(four_ranks / name) if each.slug in SLUGS]
    lines = [(each.slug, f"# {each.culprit.text.partition('# ')[2]}") for each in found]
    assert lines == ([] if expected is None else [expected])


@pytest.fixture(scope="module")
def four_ranks(built, tmp_path_factory):
    folder = tmp_path_factory.mktemp("four")
    record(folder, 4, TWO_DIMENSIONS)
    return folder


def test_recording_does_not_import_dtensor():
    program = (
        "import sys, torch, autogradviz\n"
        "with autogradviz.record() as trace:\n"
        "    torch.ones(2, requires_grad=True).sum().backward()\n"
        "assert 'torch.distributed.tensor' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


SIMULATED_RANKS = """
import sys, torch, torch.distributed as dist, autogradviz
from torch.distributed._local_tensor import LocalTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
with LocalTensorMode(4):
    mesh = init_device_mesh("cpu", (4,))
    with autogradviz.record(engine=sys.argv[1]) as trace:
        w = distribute_tensor(torch.randn(6, 3), mesh, [Shard(0)]).requires_grad_()
        w.redistribute(placements=[Replicate()]).square().sum().backward()
for event in trace.log.of(autogradviz.events.RecorderFailed):
    print(event.hook_point, event.message)
for event in trace.log.of(autogradviz.events.PlacementsChanged):
    print(event.conversion, *event.placements, *event.result_placements, event.mesh_coordinates)
"""


@pytest.mark.parametrize("engine", ["native", "python"])
@pytest.mark.usefixtures("native")
def test_parts_of_different_sizes_on_simulated_ranks_are_recorded(engine):
    ended = run_forked("-c", SIMULATED_RANKS, engine)
    assert ended.stdout.splitlines() == [
        "distribute_tensor Shard(dim=0) ()",
        "redistribute Shard(dim=0) Replicate() ()",
    ], ended.stderr
