"""Builds the native engine for each release of PyTorch and version of Python that pip can fetch.

    python release/build_engines.py [--python python3.12 ...] [--release 2.14.1 ...]

Only the headers of PyTorch and the tables of symbols of its libraries are fetched
(``torch_headers.py``); the engine is linked to empty libraries with the names of PyTorch's. The
headers of Python are those of installed interpreters, which need no packages. Each engine is
checked: all symbols that it needs must be in PyTorch, in Python, or in C and C++ libraries as old
as the platform tag of PyTorch's wheels says. The result is a folder of engines, with a list for
``autogradviz/recorder/native/prebuilt.py``.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import check_symbols
import torch_headers
import wheel_over_http

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT: Final = Path(__file__).parents[1]
OUTPUT: Final = ROOT / "build-output"
BUILT: Final = OUTPUT / "built-engines"
"""Keeps what was built, for the next run with the same sources."""
_NATIVE: Final = ROOT / "autogradviz" / "recorder" / "native"
_LIBRARIES: Final = ("torch_python", "torch_cpu", "c10")
_OF_STD: Final = re.compile(r"_Z(?:N?K?[RO]?St|NK?[RO]?St|T[ISV]N?St|TTN?St)")
_FOR_COMPARISON: Final = ("headers", "symbols")
_ASK: Final = (
    "import json, sys, sysconfig as s; print(json.dumps([sys.implementation.name,"
    " '.'.join(map(str, sys.version_info[:2])), s.get_config_var('SOABI'),"
    " s.get_path('include'), s.get_config_var('Py_GIL_DISABLED') or 0, sys.version.split()[0]]))"
)


class Interpreter(NamedTuple):
    """A Python with headers."""

    program: str
    version: str
    soabi: str
    headers: Path
    full_version: str


def load(name: str) -> Any:
    """Return a module of the native engine that uses the standard library alone."""
    spec = importlib.util.spec_from_file_location(name, _NATIVE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def interpreters(programs: Iterable[str]) -> Iterator[Interpreter]:
    """Yield those of the programs that run, have headers and are of a version not seen before."""
    seen = set()
    for program in programs:
        try:
            asked = subprocess.run(
                [program, "-Ic", _ASK], capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError):
            continue
        name, version, soabi, headers, no_gil, full = json.loads(asked.stdout)
        usable = name == "cpython" and not no_gil and (Path(headers) / "Python.h").exists()
        if usable and version not in seen:
            seen.add(version)
            yield Interpreter(program, version, soabi, Path(headers), full)


def build(wheel: torch_headers.TorchWheel, python: Interpreter, source: Any) -> dict[str, Any]:
    """Build and check one engine; return its entry in the list.

    Args:
        wheel: the wheel of PyTorch whose headers are used.
        python: the interpreter whose headers are used.
        source: the module ``extension_source``.
    """
    compiler = source.find_compiler()
    if compiler is None:
        sys.exit("there is no C++ compiler")
    BUILT.mkdir(parents=True, exist_ok=True)
    path = BUILT / _file_name(wheel, python)
    with tempfile.TemporaryDirectory(dir=OUTPUT) as work:
        headers = Path(work) / "include"
        torch_headers.lay_out(wheel, OUTPUT / "torch", headers)
        libraries = _stand_ins(compiler, Path(work), wheel.symbols)
        arguments = list(source.arguments_for(compiler[0], headers, libraries, python.headers))
        linking = [each for each in arguments if each == "-shared" or each[:2] in {"-L", "-l"}]
        compiling = [each for each in arguments if each not in linking]
        older = str(Path(__file__).with_name("older_glibc.h"))
        dependencies = Path(work) / "dependencies"
        subprocess.run(
            [
                *(*compiler, "-include", older, "-D_GLIBCXX_USE_CXX11_ABI=1", *compiling),
                *("-c", "-MD", "-MF", str(dependencies), "-o", f"{work}/engine.o"),
            ],
            check=True,
        )
        subprocess.run(
            [
                *(*compiler, "-Wl,-s", "-Wl,--no-as-needed", f"{work}/engine.o", *linking),
                *("-o", str(path)),
            ],
            check=True,
        )
        used = _used_headers(dependencies.read_text(encoding="utf-8"), headers)
    check_symbols.check(path, set(wheel.symbols), python.program)
    engine = {
        "file": path.name,
        "torch": [wheel.version],
        "torch_revisions": [wheel.git_version],
        "python": python.soabi,
        "built_with_python": python.full_version,
        "machine": platform.machine(),
        "headers": {name: wheel.headers[name] for name in used},
        "symbols": check_symbols.needed_from_torch(path, set(wheel.symbols)),
    }
    known = {**engine, "sources": source.source_digest()}
    path.with_name(f"{path.name}.json").write_text(json.dumps(known), encoding="utf-8")
    return engine


def _stand_ins(compiler: list[str], folder: Path, symbols: Iterable[str]) -> Path:
    """Make libraries with the names of PyTorch's, and with their symbols of the C++ library.

    PyTorch's libraries bring parts of a newer C++ library than the system has. An engine that is
    linked to them takes these parts from there, and not from the system.
    """
    labels = [f".globl {name}\n{name}:\n" for name in symbols if _OF_STD.match(name)]
    (folder / "symbols.s").write_text("".join(labels), encoding="utf-8")
    for name in _LIBRARIES:
        file = f"lib{name}.so"
        subprocess.run(
            [*compiler, "-shared", "-nostdlib", "symbols.s", f"-Wl,-soname,{file}", "-o", file],
            cwd=folder,
            check=True,
        )
    return folder


def _used_headers(dependencies: str, headers: Path) -> list[str]:
    """Return the headers of PyTorch that a compiler read, as it lists dependencies."""
    below = f"{headers}/"
    paths = re.findall(r"[^\s\\]+", dependencies)
    return sorted(path.removeprefix(below) for path in paths if path.startswith(below))


def same_headers(engine: dict[str, Any], hashes: dict[str, str]) -> bool:
    """Return whether an engine would be compiled from the same headers with another wheel."""
    return all(hashes.get(name) == value for name, value in engine["headers"].items())


def add_release(engines: list[dict[str, Any]], wheel: torch_headers.TorchWheel, soabi: str) -> bool:
    """Let an engine of another release serve this one, if both have the headers that it uses."""
    for engine in engines:
        if engine["python"] == soabi and same_headers(engine, wheel.headers):
            missing = set(engine["symbols"]) - set(wheel.symbols)
            if not missing:
                engine["torch"].append(wheel.version)
                engine["torch_revisions"].append(wheel.git_version)
                return True
    return False


def compare_installed(engines: list[dict[str, Any]]) -> str:
    """Return whether the installed PyTorch, such as a build for the CPU, has the same headers."""
    try:
        installed = importlib.metadata.distribution("torch")
    except importlib.metadata.PackageNotFoundError:
        return "PyTorch is not installed here, so no other build of a release was compared"
    release = installed.version.partition("+")[0]
    hashes = torch_headers.recorded_hashes(installed.read_text("RECORD") or "")
    below = {name.removeprefix("torch/include/"): value for name, value in hashes.items()}
    served = [each for each in engines if release in each["torch"]]
    if not served:
        return f"the installed PyTorch {installed.version} is not among the releases"
    if not all(same_headers(each, below) for each in served):
        sys.exit(f"PyTorch {installed.version} has other headers than the wheels of {release}")
    return (
        f"PyTorch {installed.version} has the headers of the wheels that {release} was built with"
    )


def main() -> None:
    """Build all engines."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", action="append", help="an interpreter (default: python3.10 …)")
    parser.add_argument("--release", action="append", help="of PyTorch (default: all supported)")
    options = parser.parse_args()
    source, versions = load("extension_source"), load("supported_versions")
    folder = OUTPUT / "engines"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    first, last = (minor for _, minor in versions.SUPPORTED_PYTHON)
    supported = [f"3.{minor}" for minor in range(first, last + 1)]
    programs = options.python or [f"python{version}" for version in supported]
    pythons = [each for each in interpreters(programs) if each.version in supported]
    releases = options.release or _supported_releases(versions.SUPPORTED_TORCH)
    engines: list[dict[str, Any]] = []
    for release in releases:
        for python in pythons:
            _add(engines, release, python, source, folder)
    report = compare_installed(engines)
    kept = [{key: each[key] for key in each if key not in _FOR_COMPARISON} for each in engines]
    listed = {"sources": source.source_digest(), "engines": kept}
    (folder / "engines.json").write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")
    print(report)
    missing = sorted(set(supported) - {each.version for each in pythons})
    if missing:
        print(f"no interpreter with headers was found for Python {', '.join(missing)}")
    for minor in without_engine(versions.SUPPORTED_TORCH, engines):
        print(f"NO ENGINE for PyTorch {minor}, which is supported: pip can fetch no wheel of it")


def without_engine(supported: Iterable[str], engines: list[dict[str, Any]]) -> list[str]:
    """Return the supported minor versions of PyTorch that no engine serves."""
    served = {release.rpartition(".")[0] for each in engines for release in each["torch"]}
    return [minor for minor in supported if minor not in served]


def _supported_releases(supported: Iterable[str]) -> list[str]:
    prefixes = tuple(f"{each}." for each in supported)
    plain = re.compile(r"[\d.]+")  # not 2.13.0+cpu, which has the headers of 2.13.0
    found = wheel_over_http.released("torch")
    return [each for each in found if each.startswith(prefixes) and plain.fullmatch(each)]


def _add(
    engines: list[dict[str, Any]], release: str, python: Interpreter, source: Any, folder: Path
) -> None:
    wheel = torch_headers.fetch(release, python.version, OUTPUT / "torch")
    name = f"PyTorch {release}, Python {python.version}"
    if wheel is None:
        print(f"{name}: pip finds no wheel")
    elif add_release(engines, wheel, python.soabi):
        print(f"{name}: the same headers as another release")
    else:
        engines.append(_built_before(wheel, python, source) or build(wheel, python, source))
        shutil.copy2(BUILT / engines[-1]["file"], folder)
        print(f"{name}: {engines[-1]['file']}", flush=True)


def _built_before(
    wheel: torch_headers.TorchWheel, python: Interpreter, source: Any
) -> dict[str, Any] | None:
    path = BUILT / f"{_file_name(wheel, python)}.json"
    if not path.exists():
        return None
    engine: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    same = engine.pop("sources") == source.source_digest()
    return engine if same and engine["built_with_python"] == python.full_version else None


def _file_name(wheel: torch_headers.TorchWheel, python: Interpreter) -> str:
    return f"autogradviz_native-torch{wheel.version}-{python.soabi}.so"


if __name__ == "__main__":
    main()
