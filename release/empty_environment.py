"""Installs a wheel into empty environments, and says which engine the first recordings use.

    python release/empty_environment.py dist/*manylinux*.whl --python python3.12 --torch torch
    python release/empty_environment.py dist/*none-any.whl --compiler

Without ``--compiler`` programs find no compiler, and the first recording has to use the native
engine that the wheel carries. With it, the wheel carries none: the first recording starts a build,
and one in the next process has to use the result.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
_TOOLS: Final = ("cat", "env", "false", "ls", "mkdir", "nice", "rm", "sh", "true", "uname")
_LONGEST_BUILD_S: Final = 900
_RECORD: Final = """
import sys, torch, autogradviz
from autogradviz.render.terminal_text import engine_text
model = torch.nn.Linear(4, 4)
with autogradviz.record(model) as trace:
    model(torch.ones(2, 4)).sum().backward()
trace.save(sys.argv[1], overwrite=True)
from autogradviz.recorder.native.build import status
version = sys.version.split()[0]
print(version, torch.__version__, engine_text(trace.analysis), status().reason, sep="|")
"""


class FirstRecording(NamedTuple):
    """The versions, engine and status of the engine of a recording in an environment."""

    python: str
    torch: str
    engine: str
    status: str


def run(*command: str | Path, cwd: Path = ROOT, environment: dict[str, str] | None = None) -> str:
    """Run a program and return what it printed; exit with its output if it fails.

    Args:
        command: the program and its arguments.
        cwd: the folder that it runs in.
        environment: its environment variables, if not those of this process.
    """
    ran = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if ran.returncode != 0:
        sys.exit(f"\n{ran.stdout}\nfailed: {' '.join(map(str, command))}")
    return ran.stdout


def requirements_without_torch() -> list[str]:
    """Return the packages that ours needs, except PyTorch."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    block = text.partition("\ndependencies = [")[2].partition("]")[0]
    return [name for name in re.findall(r'"([^"]+)"', block) if not name.startswith("torch")]


def make(
    folder: Path,
    wheel: Path,
    torch: str | None,
    interpreter: str = sys.executable,
    libraries: Path | None = None,
) -> Path:
    """Make an environment with a wheel and what it needs, and return its Python.

    Args:
        folder: the folder of the environment.
        wheel: our wheel.
        torch: what pip installs as PyTorch; None for none.
        interpreter: the Python that the environment is for.
        libraries: a folder with the libraries that PyTorch requires, so that pip installs none.
    """
    run(interpreter, "-m", "venv", folder)
    python = folder / "bin" / "python"
    pip = (python, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-compile")
    if torch is not None:
        alone = () if libraries is None else ("--no-deps",)
        run(*pip, *alone, torch)
    if libraries is not None:
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "shared_libraries.pth").write_text(f"{libraries.resolve()}\n", encoding="utf-8")
        run(*pip, "filelock", "fsspec", "jinja2", "networkx", "sympy", "typing-extensions")
    run(*pip, *requirements_without_torch(), *(() if torch is None else ("numpy",)))
    run(*pip, "--no-deps", wheel)
    return python


def variables(python: Path, *, compiler: bool) -> dict[str, str]:
    """Return environment variables without a trace of this machine, and a home folder.

    Args:
        python: the Python of an environment.
        compiler: programs find the compiler of this machine.
    """
    folder = python.parents[1]
    home, tools = folder / "home", folder / "tools"
    for each in (home, tools):
        each.mkdir(exist_ok=True)
    for name in _TOOLS:
        found = shutil.which(name)
        if found is not None and not (tools / name).exists():
            (tools / name).symlink_to(found)
    path = [str(python.parent), *([os.environ["PATH"]] if compiler else [str(tools)])]
    return {"PATH": os.pathsep.join(path), "HOME": str(home), "LANG": "C.UTF-8"}


def record(python: Path, trace: Path, environment: dict[str, str]) -> FirstRecording:
    """Record a step in a new process, and write its trace."""
    command = (python, "-I", "-c", _RECORD, trace)
    last = run(*command, cwd=python.parents[1], environment=environment).splitlines()[-1]
    return FirstRecording(*last.split("|"))


def check_prebuilt(python: Path, trace: Path) -> FirstRecording:
    """Exit unless the first recording used an engine of the wheel, without a compiler."""
    first = record(python, trace, variables(python, compiler=False))
    if first.engine != "native" or not first.status.startswith("prebuilt"):
        sys.exit(f"the first recording did not use an engine of the wheel: {first}")
    return first


def check_built(python: Path, trace: Path) -> tuple[FirstRecording, FirstRecording, float]:
    """Exit unless the first recording builds an engine that one in the next process uses.

    Returns:
        Both recordings, and the seconds between them.
    """
    environment = variables(python, compiler=True)
    first, begin = record(python, trace, environment), time.monotonic()
    if not first.engine.startswith("Python"):
        sys.exit(f"the wheel carries an engine: {first}")
    built = python.parents[1] / "home" / ".cache" / "autogradviz" / "native"
    while not list(built.glob("*/autogradviz_native.so")):
        if time.monotonic() - begin > _LONGEST_BUILD_S:
            sys.exit(f"there is no engine after {_LONGEST_BUILD_S} s: {first}")
        time.sleep(1)
    second, waited = record(python, trace, environment), time.monotonic() - begin
    if second.engine != "native":
        sys.exit(f"the second recording did not use the engine that was built: {second}")
    return first, second, waited


def main() -> None:
    """Check a wheel with each pair of Python and PyTorch."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--python", action="append", help="an interpreter (default: this one)")
    parser.add_argument("--torch", action="append", help="what pip installs (default: torch)")
    parser.add_argument("--libraries", type=Path, help="what PyTorch requires, for all of them")
    parser.add_argument("--compiler", action="store_true", help="check a build, not the wheel's")
    options = parser.parse_args()
    wheel = options.wheel.resolve()
    for interpreter in options.python or [sys.executable]:
        for torch in options.torch or ["torch"]:
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name) / "environment"
                python = make(folder, wheel, torch, interpreter, options.libraries)
                trace = Path(name) / "step.agv"
                if options.compiler:
                    first, second, waited = check_built(python, trace)
                    result = f"first {first.engine}, {waited:.0f} s later {second.engine}"
                else:
                    first = check_prebuilt(python, trace)
                    result = f"{first.engine}, {Path(first.status).name}"
            print(f"Python {first.python}, PyTorch {first.torch}: {result}", flush=True)


if __name__ == "__main__":
    main()
