"""Does everything that a release needs but publishing it, and says what passed.

    python release/check_release.py --tests test --torch torch==2.13.0 [--wheels dist]

Every step runs in this checkout, or in an empty environment that is removed afterwards.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT: Final = Path(__file__).parents[1]
_BIN: Final = Path(sys.executable).parent
_WITHOUT_TORCH: Final = """
import importlib.util, sys, autogradviz
assert importlib.util.find_spec("torch") is None
trace = autogradviz.load(sys.argv[1])
print(len(trace.log), "events read without PyTorch")
"""
_WITH_TORCH: Final = """
import sys, torch, autogradviz
model = torch.nn.Linear(4, 4)
with autogradviz.record(model) as trace:
    model(torch.ones(2, 4)).sum().backward()
trace.save(sys.argv[1])
print(trace)
from autogradviz.recorder.native import build
print(build.status().reason)
assert build.unsupported() or build.status().usable, "the first recording used the Python engine"
"""


def run(*command: str | Path, cwd: Path = ROOT, path: str | None = None) -> str:
    """Run a program and return what it printed; exit with its output if it fails.

    Args:
        command: the program and its arguments.
        cwd: the folder that it runs in.
        path: the value of PATH, if not the one of this process.
    """
    environment = dict(os.environ) if path is None else {**os.environ, "PATH": path}
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


def check_tree() -> str:
    """Return that there are no changes that a release would lack."""
    changes = run("git", "status", "--porcelain")
    if changes:
        sys.exit(f"the tree is not clean:\n{changes}")
    return run("git", "describe", "--always").strip()


def version() -> str:
    """Return the version of the package."""
    text = (ROOT / "autogradviz" / "_version.py").read_text(encoding="utf-8")
    match = re.search(r'__version__ = "([^"]+)"', text)
    assert match is not None
    return match[1]


def released_on() -> str | None:
    """Return the date that CHANGELOG.md has for the version, None if it has none."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    heading = rf"^## \[{re.escape(version())}\] - (\d{{4}}-\d\d-\d\d)$"
    section = re.search(heading, text, re.MULTILINE)
    return None if section is None else section[1]


def check_changelog() -> str:
    """Return that CHANGELOG.md has a dated section for the version, and nothing unreleased."""
    if released_on() is None:
        sys.exit(f"CHANGELOG.md has no section `## [{version()}] - DATE`")
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if text.partition("## [Unreleased]")[2].partition("\n## [")[0].strip():
        sys.exit("CHANGELOG.md has changes under Unreleased: give them a version and a date")
    return f"{version()}, {released_on()}"


def check_metadata(distributions: Sequence[Path]) -> str:
    """Return what the linters of packages and of workflows checked."""
    run(_BIN / "validate-pyproject", "pyproject.toml")
    run(_BIN / "twine", "check", "--strict", *distributions)
    run(_BIN / "check-manifest", "--no-build-isolation")
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    run(_BIN / "check-jsonschema", "--builtin-schema", "vendor.github-workflows", *workflows)
    return "validate-pyproject, twine, check-manifest, check-jsonschema"


def distributions(folder: Path) -> tuple[Path, list[Path]]:
    """Return the wheel that pip installs here, and all distributions of the version."""
    found = sorted(folder.glob(f"autogradviz-{version()}*"))
    wheels = [path for path in found if path.suffix == ".whl"]
    if len(wheels) != 2 or len(found) != 3:  # noqa: PLR2004 - and the source distribution
        sys.exit(
            f"{folder} has {len(found)} distributions of {version()}, not a source and two wheels"
        )
    return next(path for path in wheels if "manylinux" in path.name), found


def make_environment(folder: Path, *requirements: str | Path) -> Path:
    """Make an environment with packages, and return its Python."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    pip = (python, "-m", "pip", "--disable-pip-version-check", "install", "-q")
    run(*pip, *requirements)
    return python


def requirements_without_torch() -> list[str]:
    """Return the packages that ours needs, except PyTorch."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    block = text.partition("\ndependencies = [")[2].partition("]")[0]
    return [name for name in re.findall(r'"([^"]+)"', block) if not name.startswith("torch")]


def check_with_torch(wheel: Path, torch: str, trace: Path) -> str:
    """Return what the wheel did in an empty environment with PyTorch and no compiler."""
    with tempfile.TemporaryDirectory() as folder:
        python = make_environment(Path(folder) / "environment", torch, "numpy", wheel)
        only = str(python.parent)  # no compiler
        output = run(python, "-I", "-c", _WITH_TORCH, trace, cwd=Path(folder), path=only)
        run(python.parent / "autogradviz", "demo", "-o", "demo", cwd=Path(folder), path=only)
        pages = len(list((Path(folder) / "demo").rglob("*.html")))
    return f"{output.splitlines()[-1]}; the demo wrote {pages} reports"


def check_without_torch(wheel: Path, trace: Path) -> str:
    """Return what the wheel did in an empty environment without PyTorch."""
    with tempfile.TemporaryDirectory() as folder:
        python = make_environment(Path(folder) / "environment", *requirements_without_torch())
        run(python, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-deps", wheel)
        output = run(python, "-I", "-c", _WITHOUT_TORCH, trace, cwd=Path(folder))
        run(python.parent / "autogradviz", "show", trace, cwd=Path(folder))
    return output.strip()


def main() -> None:
    """Run all steps."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tests", default="test", help="a target of make; empty: none")
    parser.add_argument("--torch", default="torch", help="what pip installs as PyTorch")
    parser.add_argument("--wheels", type=Path, help="a folder with what `make wheels` built")
    options = parser.parse_args()
    begin = time.monotonic()

    def say(step: str, result: str) -> None:
        print(f"{time.monotonic() - begin:5.0f} s  {step}: {result}", flush=True)

    say("clean tree", check_tree())
    say("changelog", check_changelog())
    if options.tests:
        run("make", options.tests)
    say("tests", f"make {options.tests}" if options.tests else "NOT RUN")
    if options.wheels is None:
        say("wheels", run("make", "wheels").splitlines()[-1])
    wheel, found = distributions((options.wheels or ROOT / "dist").resolve())
    say("metadata", check_metadata(found))
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "step.agv"
        say("installed with PyTorch", check_with_torch(wheel, options.torch, trace))
        say("installed without PyTorch", check_without_torch(wheel, trace))
    run("make", "docs")
    say("documentation", "docs-output/html")
    print(f"Version {version()} can be released: docs/project/releasing.md")


if __name__ == "__main__":
    main()
