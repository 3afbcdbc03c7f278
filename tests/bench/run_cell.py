"""Measure one cell of a table in a separate process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any


def run_cell(script: str, *arguments: str, limit_s: int, **environment: str) -> Any:
    """Return the JSON that a script prints for a cell, or the reason as text if there is none.

    Args:
        script: the script; it is started with ``--cell`` and the arguments.
        arguments: those of the cell.
        limit_s: time limit in seconds.
        environment: variables to add to those of this process.
    """
    try:
        ran = subprocess.run(
            [sys.executable, script, "--cell", *arguments],
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        )
        return json.loads(ran.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return f"over {limit_s} s"
    except subprocess.CalledProcessError as error:
        return f"ended with {error.returncode}"
