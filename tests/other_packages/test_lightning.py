"""The callback records ``trainer.fit`` of the real Lightning."""

import sys

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer

import autogradviz
from autogradviz.integrations.lightning import AutogradvizCallback


@pytest.fixture
def fit(net, tmp_path):
    class Module(LightningModule):
        def __init__(self, writes):
            super().__init__()
            self.net = net(writes=writes)

        def training_step(self, batch, _):
            return self.net(batch).sum()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.01)

    def fit(callback, *, writes):
        torch.manual_seed(0)
        module = Module(writes)
        trainer = Trainer(
            max_steps=2,
            accelerator="cpu",
            callbacks=[callback] if callback is not None else [],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=tmp_path,
        )
        trainer.fit(module, torch.utils.data.DataLoader(torch.ones(8, 3), batch_size=2))
        return module

    return fit


def test_failing_training_has_the_finding_and_a_trace(fit, tmp_path, capsys):
    callback = AutogradvizCallback(tmp_path / "traces")
    with pytest.raises(RuntimeError, match="inplace operation") as raised:
        fit(callback, writes=True)
    assert len(raised.value.__notes__) == 1
    assert "hidden.mul_(2)" in raised.value.__notes__[0]
    assert "AddmmBackward0.mat1 was written" in raised.value.__notes__[0]
    printed = capsys.readouterr().err
    sys.stdout.write(f"{printed}{raised.value.__notes__[0]}\n")
    assert "autogradviz: trace written to" in printed
    [file] = (tmp_path / "traces").glob("*.agv")
    [finding] = autogradviz.load(file).diagnose()
    assert finding.slug == "saved-tensor-mutated"
    modules = {op.module for op in callback.trace.analysis.ops}
    assert {"net.up", "net.down"} <= modules


def test_correct_training_gives_the_same_weights_and_no_file(fit, tmp_path):
    callback = AutogradvizCallback(tmp_path / "traces")
    recorded, plain = fit(callback, writes=False), fit(None, writes=False)
    for one, other in zip(recorded.parameters(), plain.parameters(), strict=True):
        assert torch.equal(one, other)
    assert callback.trace.diagnose() == []
    assert not (tmp_path / "traces").exists()
    with autogradviz.record():  # nothing stayed open
        pass


def test_bad_condition_is_refused_at_once():
    with pytest.raises(ValueError, match="is no condition"):
        AutogradvizCallback(break_on="foo:bar")
