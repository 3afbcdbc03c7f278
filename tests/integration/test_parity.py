"""A parallel run is compared with one process: the first op that differs, on both engines."""

from pathlib import Path

import pytest
from one_process_and_parallel_programs import PROGRAMS
from ranks import run_ranks

import autogradviz
from autogradviz.cli.entry_point import main
from autogradviz.errors import RecordingStateError
from autogradviz.events import DistributedTensorSeen, LeafGradientRead, OutputNormRead

PROGRAM = Path(__file__).with_name("one_process_and_parallel_programs.py")
CORRECT = ("tensor_parallel", "sharded", "replicated", "reduced_by_hand")
SCALED = ("tensor_parallel_scaled", "sharded_scaled", "replicated_scaled")
LINE = next(
    number
    for number, line in enumerate(PROGRAM.read_text(encoding="utf-8").splitlines(), start=1)
    if line.endswith("# scaled")
)

pytestmark = pytest.mark.slow(reason="16 programs of two processes")


@pytest.fixture(scope="module")
def folder(built, tmp_path_factory):
    """Return the folder with the recordings of all programs by both engines."""
    found = tmp_path_factory.mktemp("parity")
    env = {"AUTOGRADVIZ_CACHE": str(built)}
    ended = run_ranks(PROGRAM, found, "python", "native", env=env)
    assert [rank.code for rank in ended] == [0, 0], "\n".join(rank.err for rank in ended)
    return found


@pytest.fixture(params=["python", "native"])
def compared(request, folder):
    """Return a function that compares a program with the one of one process."""
    engine = request.param
    single = autogradviz.load(folder / f"single-{engine}.agv")

    def compare(name, **options):
        return autogradviz.compare(single, autogradviz.load(folder / f"{name}-{engine}"), **options)

    return compare


@pytest.mark.parametrize("name", CORRECT)
def test_correct_parallel_program_does_not_differ_from_one_process(compared, name):
    comparison = compared(name)
    assert not comparison, str(comparison)
    count = int(comparison.note.split()[0].replace(",", ""))
    assert count > 100
    assert str(comparison).startswith("No differences.")


@pytest.mark.parametrize("name", SCALED)
def test_activation_that_one_rank_scales_is_the_first_difference(compared, name):
    first, *gradients = compared(name).differences
    assert (first.aspect, first.what) == ("parity", "first difference")
    assert "blocks.1" in first.before
    assert f"mul, one_process_and_parallel_programs.py:{LINE} on rank 1" in first.after
    assert "float32[8, 16]" in first.before  # the global shape
    assert ("Partial(sum)" if name.startswith("tensor") else "float32[4, 16]") in first.after
    assert {each.what for each in gradients} >= {"gradient of blocks.1.up.weight"}


def test_gradients_that_are_summed_instead_of_averaged_differ_by_the_number_of_ranks(compared):
    comparison = compared("summed_by_hand")
    assert all("gradient" in each.what for each in comparison)
    assert all("2 times" in each.after for each in list(comparison)[:5])


def test_tolerance_decides_what_differs(compared):
    assert compared("replicated_scaled", tolerance=1e-3)
    assert not compared("replicated_scaled", tolerance=0.2)


def test_distributed_tensors_have_local_shape_placements_and_mesh(folder):
    found = []
    for engine in ("python", "native"):
        log = autogradviz.load(folder / f"tensor_parallel-{engine}" / "rank-00001.agv").log
        tensors = autogradviz.load(
            folder / f"tensor_parallel-{engine}" / "rank-00001.agv"
        ).analysis.tensors
        layouts = {
            (
                tensors[each.tensor_id].shape, tensors[each.local_tensor_id].shape,
                each.placements, each.mesh_names, each.mesh_shape, each.mesh_coordinates,
            )
            for each in log.of(DistributedTensorSeen)
        }  # fmt: skip
        found.append(layouts)
    mesh = (("tp",), (2,), (1,))
    assert ((32, 16), (16, 16), ("Shard(dim=0)",), *mesh) in found[0]
    assert ((8, 16), (8, 16), ("Partial(sum)",), *mesh) in found[0]
    assert found[0] == found[1]


def test_both_engines_read_the_same_norms(folder):
    read = []
    for engine in ("python", "native"):
        log = autogradviz.load(folder / f"single-{engine}.agv").log
        gradients = [(each.norm, each.entry_sum) for each in log.of(LeafGradientRead)]
        ops = {op.seq: op.op for op in log.of(autogradviz.events.OpCalled)}
        outputs = {}
        for each in log.of(OutputNormRead):
            name = ops[each.op_seq]
            if name in ("aten.addmm.default", "aten.mm.default", "aten.relu.default"):
                outputs.setdefault(name, []).append((each.norm, each.entry_sum))
        read.append((gradients, outputs))
    assert len(read[0][0]) == 2 * 14  # steps and parameters
    for first, second in zip(read[0][0], read[1][0], strict=True):
        assert first == pytest.approx(second, rel=1e-9, abs=1e-9)
    assert read[0][1].keys() == read[1][1].keys()
    for name, values in read[0][1].items():
        assert values == [pytest.approx(each, rel=1e-9, abs=1e-6) for each in read[1][1][name]]


def test_command_compares_a_trace_with_the_folder_of_a_run(folder, capsys):
    single = str(folder / "single-native.agv")
    assert main(["compare", single, str(folder / "sharded-native")]) == 0
    assert "No differences." in capsys.readouterr().out


def test_recording_without_norms_is_refused(folder, tmp_path):
    with autogradviz.record() as plain:
        pass
    with pytest.raises(RecordingStateError, match="record\\(norms=True\\)"):
        autogradviz.compare(plain, autogradviz.load(folder / "sharded-native"))
    with pytest.raises(TypeError, match="tolerance"):
        autogradviz.compare(plain, plain, tolerance=1e-3)
    assert len(PROGRAMS) == len(CORRECT) + len(SCALED) + 1
