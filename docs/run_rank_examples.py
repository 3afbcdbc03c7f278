"""Run the examples of findings of runs, on several processes.

    python docs/run_rank_examples.py FOLDER NAME PORT [NAME PORT ...]

is one rank, with the variables that torchrun sets; it runs each example in
``FOLDER/NAME/project``. Starting interpreters takes longer than an example, so all examples share
them. ``main`` of draw_guide_and_finding_pictures.py and a test start them.
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


def examples() -> dict[str, str]:
    """Return the example of each page, by its slug."""
    from autogradviz.explanations.read_pages import pages

    assert {page.processes for page in pages("runs")} == {PROCESSES}
    return {page.slug: page.example.lstrip() for page in pages("runs")}


def prepare(folder: Path, programs: dict[str, str]) -> list[str]:
    """Write programs below a folder; return the arguments of each rank."""
    with ExitStack() as bound:
        ports = []
        for name, program in programs.items():
            project = folder / name / "project"
            project.mkdir(parents=True)
            (project / "example.py").write_text(program, encoding="utf-8")
            free = bound.enter_context(socket.socket())
            free.bind(("127.0.0.1", 0))
            ports.append(str(free.getsockname()[1]))
    chosen = zip(programs, ports, strict=True)
    return [__file__, str(folder), *(word for pair in chosen for word in pair)]


def start_all(folder: Path) -> None:
    """Run all examples on new processes."""
    arguments = [sys.executable, *prepare(folder, examples())]
    variables = {"WORLD_SIZE": str(PROCESSES), "MASTER_ADDR": "127.0.0.1"}
    ranks = [
        subprocess.Popen(arguments, env=os.environ | variables | {"RANK": str(rank)})  # noqa: S603
        for rank in range(PROCESSES)
    ]
    assert [rank.wait() for rank in ranks] == [0] * PROCESSES


def run_as_rank(folder: Path, name: str, port: str) -> None:
    """Run one example on this rank; it may raise."""
    project = folder / name / "project"
    os.chdir(project)
    os.environ["MASTER_PORT"] = port
    os.environ["TORCHELASTIC_RUN_ID"] = name
    path = project / "example.py"
    try:
        exec(compile(path.read_text(encoding="utf-8"), path, "exec"), {"__name__": "example"})  # noqa: S102
    except Exception:  # noqa: BLE001 - some examples raise
        traceback.print_exc()


def main() -> None:
    """Run the examples that the command line names, each in a fork.

    The end of a process closes its connections, for which the other rank may wait.
    """
    # Once for all forks.
    import torch
    import torch._dynamo
    import torch.distributed.pipelining
    import torch.distributed.tensor

    import autogradviz.recorder.recorder  # noqa: F401

    torch.manual_seed(0)
    torch.set_num_threads(1)
    folder, *chosen = sys.argv[1:]
    for name, port in zip(chosen[::2], chosen[1::2], strict=True):
        child = os.fork()
        if child == 0:
            try:
                run_as_rank(Path(folder), name, port)
                sys.stderr.flush()
            finally:
                os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
