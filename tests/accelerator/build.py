"""Build the test device once for each PyTorch, Python and source.

``python -m tests.accelerator.build`` does it; so does the first test that needs it.

The library lies beside the builds of the native engine, whose compiler, options and way to write
the cache it shares.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import sysconfig
import tempfile
from functools import cache
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import torch

from autogradviz.recorder.native import build as native
from autogradviz.recorder.native.extension_source import find_compiler
from autogradviz.recorder.native.run_compiler import CompilerError, compile_to

MODULE = "autogradviz_test_device"
NO_COMPILER = "no C++ compiler was found, and the test device is not built"

_FOLDER = Path(__file__).parent
_QUICKER = ("-O1", "-fno-var-tracking")


def library_path() -> Path:
    """Return the path of the library for this PyTorch, this Python and this source."""
    # Tests of the Python engine hide the builds of the native one.
    chosen = os.environ.get("AUTOGRADVIZ_TEST_CACHE")
    folder = Path(chosen) if chosen else native.cache_folder()
    return folder / "accelerator" / _digest() / f"{MODULE}.so"


@cache
def _digest() -> str:
    digest = hashlib.sha256()
    for path in sorted([*_FOLDER.glob("*.cpp"), *_FOLDER.glob("*.h"), Path(__file__)]):
        digest.update(path.read_bytes())
    facts = (
        str(torch.__version__), str(torch.version.git_version), sys.version,
        str(sysconfig.get_config_var("SOABI")), platform.machine(),
    )  # fmt: skip
    digest.update("\0".join(facts).encode())
    return digest.hexdigest()[:16]


def build() -> Path:
    """Build the library unless it exists; return its path.

    Raises:
        CompilerError: there is no compiler, or it failed.
    """
    path = library_path()
    if path.exists():
        return path
    compiler = find_compiler()
    if compiler is None:
        raise CompilerError(NO_COMPILER)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(suffix=".so", dir=path.parent)
    os.close(handle)
    try:
        compile_to(path, [*compiler, *_arguments(compiler[0])], Path(temporary))
    finally:
        Path(temporary).unlink(missing_ok=True)
    return path


def _arguments(compiler: str) -> list[str]:
    """Return the arguments of the compiler: those of the native engine, with this source."""
    own = {str(Path(native.__file__).with_name("module.cpp")): str(_FOLDER / "module.cpp")}
    arguments = list(native.arguments(compiler))
    assert sum(each in own for each in arguments) == 1
    arguments = [own.get(each, each) for each in arguments]
    return [*arguments, *_QUICKER]


@cache
def load():
    """Return the library as a Python module; build it if that was not done."""
    path = build()
    loader = ExtensionFileLoader(MODULE, str(path))
    spec = spec_from_file_location(MODULE, path, loader=loader)
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def main() -> int:
    try:
        print(f"The test device is at {build()}.")
    except CompilerError as error:
        print(f"The test device was not built: {error}", file=sys.stderr)
        # Without a compiler its tests are skipped.
        return int(os.environ.get("CI") == "true" or str(error) != NO_COMPILER)
    return 0


if __name__ == "__main__":
    sys.exit(main())
