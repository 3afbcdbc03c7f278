"""Build, find and load the C++ extension of the native engine.

The extension belongs to one PyTorch, one Python and one version of its source, so the cache has a
folder for each combination. A build writes to a temporary file and moves it into place, so that
two processes may build at once and a broken build leaves nothing behind.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shutil
import sys
import sysconfig
import tempfile
from contextlib import suppress
from functools import cache
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from autogradviz.errors import NativeBuildError
from autogradviz.events import FrameSeen, field_names
from autogradviz.recorder.native import prebuilt
from autogradviz.recorder.native.access_cpp_tables import KINDS
from autogradviz.recorder.native.extension_source import (
    arguments_for,
    find_compiler,
    source_digest,
)
from autogradviz.recorder.native.run_compiler import CompilerError, compile_to, failure_of
from autogradviz.recorder.native.supported_versions import SUPPORTED_PYTHON, SUPPORTED_TORCH

if TYPE_CHECKING:
    from collections.abc import Iterator

MODULE: Final = "autogradviz_native"
HOW_TO_BUILD: Final = "run `autogradviz native build` once, for recordings at a lower cost"
NO_COMPILER: Final = "there is no C++ compiler: install g++ or clang++, or name one in CXX"

_FOLDER: Final = Path(__file__).parent
_TORCH: Final = Path(torch.__file__).parent
_FOLDER_VARIABLES: Final = ("AUTOGRADVIZ_CACHE", "XDG_CACHE_HOME", "HOME")
"""The environment variables that determine the cache folder."""

_loaded: dict[Path, Any] = {}


class Status(NamedTuple):
    """The usability of the extension in this environment."""

    usable: bool
    reason: str
    """One sentence: why it is not usable, or where it is."""
    extension: Any = None
    """The loaded extension, if it is usable."""


def cache_folder() -> Path:
    """Return the folder that holds the builds of all environments."""
    chosen = os.environ.get("AUTOGRADVIZ_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "autogradviz"


def library_path() -> Path:
    """Return the path of the extension for this PyTorch, this Python and this source."""
    variables = tuple(map(os.environ.get, _FOLDER_VARIABLES))
    return _library_path(variables, str(torch.__version__), str(torch.version.git_version))


@cache
def _library_path(_variables: tuple[str | None, ...], *torch_versions: str) -> Path:
    facts = (
        source_digest(), *torch_versions, sys.version, str(sysconfig.get_config_var("SOABI")),
        platform.machine(),
    )  # fmt: skip
    digest = hashlib.sha256("\0".join(facts).encode()).hexdigest()
    return cache_folder() / "native" / digest[:16] / f"{MODULE}.so"


def unsupported() -> str | None:
    """Return why the extension cannot work in this environment, None if it can."""
    version = str(torch.__version__)
    if not version.startswith(tuple(f"{each}." for each in SUPPORTED_TORCH)):
        return f"PyTorch {version} is not among the supported versions {', '.join(SUPPORTED_TORCH)}"
    first, last = SUPPORTED_PYTHON
    if not first <= sys.version_info[:2] <= last or sys.implementation.name != "cpython":
        return f"Python {platform.python_version()} is not supported"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "Python without a global interpreter lock is not supported"
    if sys.platform != "linux":
        return f"{sys.platform} is not supported"
    return None


def status() -> Status:
    """Return whether the extension is built for this environment and can be loaded."""
    problem = unsupported()
    if problem is not None:
        return Status(usable=False, reason=problem)
    carried = prebuilt.find(source_digest(), torch.version.git_version)
    if carried is not None:
        with suppress(ImportError):  # such as an older C library: one that is built here may work
            return Status(usable=True, reason=f"prebuilt, at {carried}", extension=_load(carried))
    path = library_path()
    if not path.exists():
        return Status(usable=False, reason=f"the native one is not built; {HOW_TO_BUILD}")
    try:
        extension = _load(path)
    except ImportError as error:
        return Status(usable=False, reason=f"the native one cannot be loaded: {error}")
    return Status(usable=True, reason=f"built at {path}", extension=extension)


def _load(path: Path) -> Any:
    if path not in _loaded:
        loader = ExtensionFileLoader(MODULE, str(path))
        spec = importlib.util.spec_from_file_location(MODULE, path, loader=loader)
        if spec is None:
            message = f"{path} is not an extension module"
            raise ImportError(message)
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
        _check_fields(module.field_counts())
        module.set_recorder_folder(str(_FOLDER.parent) + os.sep)
        _loaded[path] = module
    return _loaded[path]


def _check_fields(counts: tuple[int, ...]) -> None:
    """Check that C++ writes as many fields of each event as its dataclass has.

    It leaves frames to Python: the names of their functions and files.
    """
    for kind, count in zip(KINDS, counts, strict=True):
        known = len(field_names(kind))
        if count != known and kind is not FrameSeen:
            message = f"C++ writes {count} fields of {kind.__name__}, which has {known}"
            raise ImportError(message)


def build() -> Path:
    """Build the extension for this environment, and return its path.

    Raises:
        NativeBuildError: there is no compiler, it failed, or the cache cannot be written.
    """
    problem = unsupported()
    if problem is not None:
        raise NativeBuildError(problem)
    compiler = find_compiler()
    if compiler is None:
        raise NativeBuildError(NO_COMPILER)
    path = library_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(suffix=".so", dir=path.parent)
        os.close(handle)
    except OSError as error:
        message = f"the cache folder cannot be written: {error}"
        raise NativeBuildError(message) from None
    try:
        compile_to(path, [*compiler, *arguments(compiler[0])], Path(temporary))
    except CompilerError as error:
        raise NativeBuildError(str(error)) from None
    finally:
        Path(temporary).unlink(missing_ok=True)
    return path


def failure() -> str | None:
    """Return why the compiler failed to build the extension, None if it did not or is another."""
    compiler = find_compiler()
    return None if compiler is None else failure_of(library_path(), compiler[0])


def arguments(compiler: str) -> Iterator[str]:
    """Yield the arguments of a compiler, without the output."""
    yield f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    python = Path(sysconfig.get_path("include"))
    yield from arguments_for(compiler, _TORCH / "include", _TORCH / "lib", python)


def clean() -> int:
    """Remove the builds of all environments; return their number."""
    folder = cache_folder() / "native"
    count = len(list(folder.glob(f"*/{MODULE}.so")))
    shutil.rmtree(folder, ignore_errors=True)
    return count
