"""Run a program as several ranks, each a process of its own."""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from interpreters import Forked

PROGRAMS = Path(__file__).with_name("rank_programs.py")
SECONDS = 100


@dataclass
class Ended:
    """One rank that has ended."""

    code: int
    out: str
    err: str


def run_ranks(*arguments, world=2, cwd=None, env=None):
    """Run ``python <arguments>`` as each rank; return how each ended.

    The launcher's variables are set as torchrun sets them.
    """
    started = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for rank in range(world):
                own = {
                    "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world),
                    "LOCAL_WORLD_SIZE": str(world), "GROUP_RANK": "0",
                    "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1",
                }  # fmt: skip
                out, err = (Path(folder, f"{rank}.{name}") for name in ("out", "err"))
                with out.open("w") as out_file, err.open("w") as err_file:
                    process = Forked(
                        *arguments, cwd=cwd, env={**os.environ, **own, **(env or {})},
                        stdout=out_file.fileno(), stderr=err_file.fileno(),
                    )  # fmt: skip
                started.append((process, out, err))
            return [
                Ended(process.wait(SECONDS), out.read_text(), err.read_text())
                for process, out, err in started
            ]
        finally:
            for process, _, _ in started:
                process.kill()
