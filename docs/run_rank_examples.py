"""Run the examples of findings of runs, on several processes.

    python docs/run_rank_examples.py FOLDER SLUG PORT [SLUG PORT ...]

is one rank, with the variables that torchrun sets; it runs the example of each slug in
``FOLDER/SLUG/project``. Starting processes takes longer than an example, so all examples share
them. ``main`` of docs_pictures.py and a test start them.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import traceback
from contextlib import ExitStack
from pathlib import Path

PROCESSES = 2


def prepare(folder: Path) -> list[str]:
    """Write the examples of all pages below a folder; return the arguments of each rank."""
    from autogradviz.run_finding_pages import RUN_PAGES

    with ExitStack() as bound:
        ports = []
        for page in RUN_PAGES:
            assert page.processes == PROCESSES
            project = folder / page.slug / "project"
            project.mkdir(parents=True)
            (project / "example.py").write_text(page.example.lstrip(), encoding="utf-8")
            free = bound.enter_context(socket.socket())
            free.bind(("127.0.0.1", 0))
            ports.append(str(free.getsockname()[1]))
    chosen = zip([page.slug for page in RUN_PAGES], ports, strict=True)
    return [__file__, str(folder), *(word for pair in chosen for word in pair)]


def start_all(folder: Path) -> None:
    """Run all examples on new processes."""
    arguments = [sys.executable, *prepare(folder)]
    variables = {"WORLD_SIZE": str(PROCESSES), "MASTER_ADDR": "127.0.0.1"}
    ranks = [
        subprocess.Popen(arguments, env=os.environ | variables | {"RANK": str(rank)})  # noqa: S603
        for rank in range(PROCESSES)
    ]
    assert [rank.wait() for rank in ranks] == [0] * PROCESSES


def run_as_rank(folder: Path, slug: str, port: str) -> None:
    """Run one example on this rank; it may raise."""
    import torch
    import torch.distributed as dist

    project = folder / slug / "project"
    os.chdir(project)
    os.environ["MASTER_PORT"] = port
    torch.manual_seed(0)
    path = project / "example.py"
    try:
        exec(compile(path.read_text(encoding="utf-8"), path, "exec"), {"__name__": "example"})  # noqa: S102
    except Exception:  # noqa: BLE001 - some examples raise
        traceback.print_exc()
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def main() -> None:
    """Run the examples that the command line names."""
    import torch

    torch.set_num_threads(1)
    folder, *chosen = sys.argv[1:]
    for slug, port in zip(chosen[::2], chosen[1::2], strict=True):
        run_as_rank(Path(folder), slug, port)


if __name__ == "__main__":
    main()
