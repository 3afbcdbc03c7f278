"""The view model of a run: what its picture shows, as plain values."""

from autogradviz.distributed_runs.scene.build_run_scene import build_run_scene
from autogradviz.distributed_runs.scene.payload import pack_run
from autogradviz.distributed_runs.scene.saved_bytes_and_gradient_norms import read_totals
from autogradviz.distributed_runs.scene.schema import RunScene

__all__ = ["RunScene", "build_run_scene", "pack_run", "read_totals"]
