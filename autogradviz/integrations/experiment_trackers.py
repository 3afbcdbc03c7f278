"""Log a trace to TensorBoard, Weights & Biases or MLflow, through their own API.

Each function logs the findings as text and the interactive report as a file; W&B and MLflow get the
trace too. The packages are imported when they are used.
"""

from __future__ import annotations

import importlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autogradviz.errors import MissingExtraError, OutputExistsError
from autogradviz.render.terminal_text import as_text, render_findings

if TYPE_CHECKING:
    from autogradviz.trace import Trace


def log_to_tensorboard(
    trace: Trace, writer: Any, *, step: int = 0, tag: str = "autogradviz"
) -> Path:
    """Log a trace to TensorBoard.

    The findings become text, the bytes of saved tensors scalars. TensorBoard displays no HTML, so
    the report is written into the folder of the writer.

    Args:
        trace: the trace.
        writer: a ``torch.utils.tensorboard.SummaryWriter``, or an object like it.
        step: the global step.
        tag: begins the names of what is logged, and of the report.

    Returns:
        The path of the report.

    Raises:
        TypeError: if ``trace`` or ``writer`` is something else.
    """
    _check_trace(trace, "log_to_tensorboard()")
    if not (hasattr(writer, "add_text") and hasattr(writer, "add_scalar")):
        message = f"log_to_tensorboard() takes a SummaryWriter, not {type(writer).__name__}"
        raise TypeError(message)
    folder = getattr(writer, "log_dir", None) or writer.get_logdir()
    report = Path(folder) / f"{tag.replace('/', '-')}-{step}.html"
    trace.html(report)
    sizes = trace.saved_bytes()
    writer.add_text(f"{tag}/findings", f"{_markdown(trace)}\n\nReport: `{report}`", step)
    writer.add_scalar(f"{tag}/saved_bytes_at_peak", sizes.at_peak, step)
    writer.add_scalar(f"{tag}/recomputed_bytes", sizes.recomputed, step)
    writer.add_scalar(f"{tag}/findings_count", len(trace.diagnose()), step)
    return report


def log_to_wandb(trace: Trace, run: Any = None, *, name: str = "autogradviz") -> None:
    """Log a trace to Weights & Biases: the report as HTML, and report and trace as an artifact.

    Args:
        trace: the trace.
        run: a run; by default the one of ``wandb.init()``.
        name: of the panel and the artifact.

    Raises:
        TypeError: if ``trace`` is no trace.
        ValueError: if there is no run.
        MissingExtraError: if wandb is not installed.
    """
    _check_trace(trace, "log_to_wandb()")
    wandb = _import("wandb")
    run = wandb.run if run is None else run
    if run is None:
        message = "there is no run; call wandb.init() first, or pass one"
        raise ValueError(message)
    with tempfile.TemporaryDirectory() as folder:
        report, file = _write(trace, Path(folder), name)
        run.log({name: wandb.Html(report.read_text(encoding="utf-8"), inject=False)})
        artifact = wandb.Artifact(name, type="autogradviz", description=_titles(trace))
        artifact.add_file(str(report))
        artifact.add_file(str(file))
        run.log_artifact(artifact)
        run.summary[f"{name}/findings"] = _titles(trace)


def log_to_mlflow(trace: Trace, *, name: str = "autogradviz", run_id: str | None = None) -> None:
    """Log a trace to MLflow: findings, report and trace as artifacts of a run.

    Args:
        trace: the trace.
        name: the folder of the artifacts.
        run_id: of the run; by default the active one, which MLflow starts if there is none.

    Raises:
        TypeError: if ``trace`` is no trace.
        MissingExtraError: if mlflow is not installed.
    """
    _check_trace(trace, "log_to_mlflow()")
    mlflow = _import("mlflow")
    with tempfile.TemporaryDirectory() as folder:
        _write(trace, Path(folder), name)
        (Path(folder) / "findings.md").write_text(_markdown(trace), encoding="utf-8")
        mlflow.log_artifacts(folder, artifact_path=name, run_id=run_id)
    if run_id is None:
        mlflow.set_tag(f"{name}.findings", _titles(trace))


def _check_trace(trace: object, caller: str) -> None:
    from autogradviz.trace import Trace

    if not isinstance(trace, Trace):
        message = f"{caller} takes a Trace, as record() gives it, not {type(trace).__name__}"
        raise TypeError(message)


def _import(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError:
        message = f"{package} is not installed: pip install {package}"
        raise MissingExtraError(message) from None


def _write(trace: Trace, folder: Path, name: str) -> tuple[Path, Path]:
    """Write the report and the trace into an empty folder."""
    if "/" in name or "\\" in name:
        message = f"the name of an artifact is no path: {name!r}"
        raise OutputExistsError(message)
    report, file = folder / f"{name}.html", folder / f"{name}.agv"
    trace.html(report)
    trace.save(file)
    return report, file


def _titles(trace: Trace) -> str:
    """Return the findings in one line."""
    return "; ".join(each.title for each in trace.diagnose()) or "No findings."


def _markdown(trace: Trace) -> str:
    """Return the findings as Markdown, which keeps the lines of source code."""
    found = as_text(render_findings(trace.diagnose()))
    return "\n".join(f"    {line}" for line in found.splitlines())
