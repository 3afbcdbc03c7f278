"""Does everything that a release needs but publishing it, and says what passed.

    python release/check_release.py --tests test --torch torch==2.13.0 [--wheels dist]

Every step runs in this checkout, or in an empty environment that is removed afterwards.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import empty_environment
from empty_environment import run

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


def check_with_torch(wheel: Path, torch: str, trace: Path) -> str:
    """Return what the wheel did in an empty environment with PyTorch and no compiler."""
    with tempfile.TemporaryDirectory() as folder:
        python = empty_environment.make(Path(folder) / "environment", wheel, torch)
        first = empty_environment.check_prebuilt(python, trace)
        without_compiler = empty_environment.variables(python, compiler=False)
        demo = (python.parent / "autogradviz", "demo", "-o", "demo")
        run(*demo, cwd=Path(folder), environment=without_compiler)
        pages = len(list((Path(folder) / "demo").rglob("*.html")))
    return (
        f"Python {first.python}, PyTorch {first.torch}: {first.engine}, {first.status}; the demo"
        f" wrote {pages} reports"
    )


def check_without_torch(wheel: Path, trace: Path) -> str:
    """Return what the wheel did in an empty environment without PyTorch."""
    with tempfile.TemporaryDirectory() as folder:
        python = empty_environment.make(Path(folder) / "environment", wheel, None)
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
