"""``autogradviz native``: build, check or remove the C++ extension of the native engine."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from autogradviz.cli.subcommand_and_exit_codes import Command

if TYPE_CHECKING:
    import argparse


def _arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    for name, run, help_text in (
        ("build", _build, "build it for this PyTorch and this Python"),
        ("status", _status, "print whether recordings use it, and why not"),
        ("clean", _clean, "remove the builds of all environments"),
    ):
        example = f"example: autogradviz native {name}"
        parser = actions.add_parser(name, help=help_text, description=help_text, epilog=example)
        parser.set_defaults(run=run)


def _build(_options: argparse.Namespace) -> None:
    from autogradviz.recorder.native import build

    status = build.status()
    built = f"the native engine is {status.reason}" if status.usable else f"built {build.build()}"
    sys.stdout.write(f"{built}\n")


def _status(_options: argparse.Namespace) -> None:
    from autogradviz.recorder.native import background_build, build
    from autogradviz.recorder.native.extension_source import find_compiler

    status = build.status()
    engine = "native" if status.usable else "Python"
    sys.stdout.write(f"{engine} engine: {status.reason}\n")
    if status.usable or build.unsupported() is not None:
        return
    if find_compiler() is None:
        sys.stdout.write(f"It cannot be built: {build.NO_COMPILER}.\n")
    if background_build.is_running(build.library_path()):
        sys.stdout.write("A build is running in the background.\n")
    failure = build.failure()
    if failure is not None:
        sys.stdout.write(f"The last build failed, and recordings start no other:\n{failure}\n")


def _clean(_options: argparse.Namespace) -> None:
    from autogradviz.recorder.native import build

    count = build.clean()
    sys.stdout.write(f"removed {count} build{'' if count == 1 else 's'}\n")


COMMAND: Final = Command(
    "native",
    _status,
    _arguments,
)
