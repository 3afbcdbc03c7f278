"""Traces are logged through the real packages, and can be read back."""

import pytest

import autogradviz
from autogradviz.integrations.experiment_trackers import (
    log_to_mlflow,
    log_to_tensorboard,
    log_to_wandb,
)

TITLE = "hidden was written at line 27 after line 25 saved it"

VIEWER = "autogradviz.default.render"


def test_tensorboard_has_findings_and_bytes(failing_trace, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path) as writer:
        report = log_to_tensorboard(failing_trace, writer, step=7)
    assert report == tmp_path / "autogradviz-7.html"
    assert VIEWER in report.read_text(encoding="utf-8")
    logged = EventAccumulator(str(tmp_path), size_guidance={"tensors": 0}).Reload()
    [text] = logged.Tensors("autogradviz/findings/text_summary")
    assert TITLE in text.tensor_proto.string_val[0].decode()
    [scalar] = logged.Scalars("autogradviz/saved_bytes_at_peak")
    assert (scalar.step, scalar.value) == (7, failing_trace.saved_bytes().at_peak)
    with pytest.raises(TypeError, match="takes a SummaryWriter, not str"):
        log_to_tensorboard(failing_trace, str(tmp_path))


def test_mlflow_has_findings_report_and_trace(failing_trace, tmp_path, monkeypatch):
    import mlflow

    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    with mlflow.start_run() as run:
        log_to_mlflow(failing_trace)
    client = mlflow.MlflowClient()
    files = [each.path for each in client.list_artifacts(run.info.run_id, "autogradviz")]
    assert files == [
        "autogradviz/autogradviz.agv", "autogradviz/autogradviz.html", "autogradviz/findings.md",
    ]  # fmt: skip
    assert client.get_run(run.info.run_id).data.tags["autogradviz.findings"] == TITLE
    local = mlflow.artifacts.download_artifacts(run_id=run.info.run_id, artifact_path=files[0])
    assert autogradviz.load(local).diagnose()[0].title == TITLE


def test_wandb_has_report_and_artifact(failing_trace, tmp_path, monkeypatch):
    import wandb

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with pytest.raises(ValueError, match=r"call wandb.init\(\) first"):
        log_to_wandb(failing_trace)
    run = wandb.init(dir=tmp_path, project="test", mode="offline")
    log_to_wandb(failing_trace)
    media = list(tmp_path.rglob("media/html/*.html"))
    summary = run.summary["autogradviz/findings"]
    run.finish()
    assert [VIEWER in each.read_text(encoding="utf-8") for each in media] == [True]
    assert summary == TITLE
