"""The demo: its files, its finding, and its reproducibility."""

import io

import pytest
import torch
from rich.console import Console

import autogradviz
from autogradviz.demo import training_text as dataset
from autogradviz.demo.gpt import GPT, CachedAttention, Config
from autogradviz.demo.run import Training, run_demo

SMALL = Config(context=16, layers=2, heads=2, width=16)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "out"
    console = Console(file=io.StringIO(), width=200)
    run_demo(folder, console, SMALL)
    return folder, console.file.getvalue()


def test_every_printed_file_exists(demo):
    folder, printed = demo
    names = ["bug.agv", "bug.html", "graph.svg", "report.html", "step.agv"]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert [name for name in names if str(folder / name) not in printed] == []


def test_correct_step_has_no_finding(demo):
    trace = autogradviz.load(demo[0] / "step.agv")
    assert trace.diagnose() == []
    assert trace.log.problem is None
    assert [(r.module, len(r.recomputations)) for r in trace.analysis.regions] == [
        ("blocks.0", 1),
        ("blocks.1", 1),
    ]
    assert "No findings." in demo[1]


def test_bug_is_found_where_the_cache_grows(demo):
    (finding,) = autogradviz.load(demo[0] / "bug.agv").diagnose()
    assert finding.slug == "checkpoint-different-metadata"
    assert finding.culprit.function == "CachedAttention.forward"
    assert finding.culprit.text == "self.cache = (k, v)"
    assert f"autogradviz: {finding.title}" in demo[1]
    assert finding.culprit.text in demo[1]


def test_same_seed_gives_the_same_loss():
    losses = []
    for _ in range(2):
        training = Training(SMALL)
        losses.append([training.step().item(), training.step().item()])
    assert losses[0] == losses[1]
    assert losses[0][0] != losses[0][1]


def test_recording_does_not_change_the_training():
    plain = Training(SMALL)
    expected = [plain.step() for _ in range(2)]
    watched = Training(SMALL)
    with autogradviz.record(watched.model):
        seen = [watched.step() for _ in range(2)]
    assert torch.stack(expected).equal(torch.stack(seen))
    for ours, theirs in zip(watched.model.parameters(), plain.model.parameters(), strict=True):
        assert ours.equal(theirs)


def test_attention_is_causal():
    model = GPT(SMALL)
    characters = torch.randint(128, (1, 16))
    changed = characters.clone()
    changed[0, 8:] = 0
    before, after = (model.blocks[0](model.token(given)) for given in (characters, changed))
    assert after[:, :8].equal(before[:, :8])
    assert not after[:, 8:].equal(before[:, 8:])


def test_cache_is_correct_for_generation():
    torch.manual_seed(0)
    cached, x = CachedAttention(SMALL), torch.randn(1, 6, 16)
    whole = cached(x)
    cached.cache = None
    pieces = [cached(x[:, :4]), cached(x[:, 4:])]
    torch.testing.assert_close(torch.cat(pieces, dim=1), whole)


def test_text_is_ascii_of_the_requested_length():
    characters = dataset.read_text(5_000)
    assert (characters.dtype, characters.shape) == (torch.int64, (5_000,))
    assert int(characters.max()) < SMALL.vocabulary


def test_later_batch_is_shifted_by_one_character():
    now, later = dataset.draw_batch(torch.arange(50), batch=4, context=8)
    assert now.shape == (4, 8)
    assert later.equal(now + 1)


def test_missing_standard_library_sources_raise(monkeypatch, tmp_path):
    monkeypatch.setattr("sysconfig.get_path", {"stdlib": str(tmp_path)}.get)
    with pytest.raises(FileNotFoundError, match="which this Python lacks"):
        dataset.read_text()
