"""Run the examples of a documentation page, as a reader would.

    python docs/run_examples.py guides/compare-two-runs.md

prints each example with its output. ``--update`` writes the outputs into the page. ``--findings``
prints the finding of each page in ``docs/findings/`` as JSON.

The ``python`` blocks of a page are one program: they run in order, in one namespace, in an empty
folder. ``console`` blocks run commands of autogradviz (``$ autogradviz show step.agv``) in the same
folder. A ``text`` block that directly follows a ``python`` block is its output; if the block
raises, it is the exception with its notes. ``compare_outputs.py`` says what is compared.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import os
import re
import shlex
import sys
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compare_outputs import is_same_output

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from autogradviz import Finding, Run, Trace
    from autogradviz.explanations.read_pages import Page

DOCS = Path(__file__).parent
PAGES = [
    DOCS.parent / "README.md",
    DOCS / "README.md",
    DOCS / "first-minute.md",
    DOCS / "long-trainings.md",
    *sorted((DOCS / "guides").glob("*.md")),
    *sorted((DOCS.parent / "autogradviz" / "skills").glob("*/SKILL.md")),
]
FILE = "train.py"
BLOCK = re.compile(
    r"^```(?P<language>python|console)\n(?P<code>.*?)^```\n(?:\n?^```text\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Result:
    """One example that was run.

    Attributes:
        line: the line of the page, from 1.
        expected: the output in the page, "" if the page shows none.
        output: the output of this run.
        raised: whether the example raised an exception.
        span: the place of the expected output in the page; None if it has none.
    """

    line: int
    expected: str
    output: str
    raised: bool
    span: tuple[int, int] | None

    @property
    def is_as_expected(self) -> bool:
        """Whether the output is the one in the page, and no exception is missing there."""
        if self.span is None:
            return not self.raised
        return is_same_output(self.expected, self.output)


def run_page(page: Path, folder: Path) -> Iterator[Result]:
    """Run the examples of a page in a folder, which becomes the working directory meanwhile.

    Yields:
        The result of each example, in order.
    """
    text = page.read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "__main__"}
    blocks = list(BLOCK.finditer(text))
    # The whole program, because Python reads the lines of a file once.
    program = "".join(f"{each['code']}\n" for each in blocks if each["language"] == "python")
    start = 0
    with changed_directory(folder):
        Path(FILE).write_text(program, encoding="utf-8")
        for found in blocks:
            line = text.count("\n", 0, found.start()) + 1
            if found["language"] == "python":
                code = "\n" * start + found["code"]
                start = code.count("\n") + 1
                output, raised = _run_python(code, folder / FILE, names)
                group = "output"
                expected = found["output"] or ""
            else:
                command, _, expected = found["code"].partition("\n")
                output, raised = _run_command(command)
                group = "code"
            span = found.span(group)
            if group == "code":
                span = (span[0] + len(found["code"]) - len(expected), span[1])
            yield Result(line, expected, output, raised, span if span[0] >= 0 else None)


def run_finding(page: Page, folder: Path) -> Trace:
    """Run the example of a finding as a file in a folder, and return its trace."""
    import torch

    path = folder / "example.py"
    code = page.example.lstrip()
    path.write_text(code, encoding="utf-8")
    names: dict[str, Any] = {"__name__": "example"}
    torch.manual_seed(0)
    _forget_compilations()
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            exec(compile(code, str(path), "exec"), names)  # noqa: S102 - an example of the rules
        except Exception:  # noqa: BLE001, S110 - most examples raise
            pass
        finally:
            torch.set_default_dtype(torch.float32)
    return names["trace"]


def _forget_compilations() -> None:
    """Make the numbers of compilations start again, which are part of names of regions."""
    frames: Any = sys.modules.get("torch._dynamo.convert_frame")
    if frames is not None:
        sys.modules["torch._dynamo"].reset()
        frames.FRAME_COUNTER = 0
        frames.FRAME_COMPILE_COUNTER.clear()
    wrappers: Any = sys.modules.get("torch._higher_order_ops.wrap")
    if wrappers is not None:
        wrappers.uid = itertools.count(1)  # numbers checkpointed regions


def finding_text(trace: Trace) -> str:
    """Return the first finding of a trace, as the page of the finding shows it."""
    found = trace.diagnose()
    if not found:
        message = "the example has no finding"
        raise LookupError(message)
    return _text(found[0])


def run_finding_text(run: Run) -> str:
    """Return the first finding of a run, as the page of the finding shows it."""
    found = run.diagnose()[0]
    return f"{found.heading}\n\n{_text(found.finding)}"


def _text(finding: Finding) -> str:
    parts = [
        f"{finding.title}  [{finding.confidence}]",
        finding.explanation,
        f"Fix:\n{finding.fix}",
    ]
    return "\n\n".join(parts) + "\n"


def findings(slugs: Collection[str] = ()) -> Iterator[tuple[str, Trace]]:
    """Yield the slug of each finding, or of some, with the trace of its example."""
    from autogradviz.explanations.read_pages import pages

    for page in pages("findings"):
        if page.on_accelerator or (slugs and page.slug not in slugs):
            continue
        # Lines are named relative to the working directory, also by the caller's diagnosis.
        with project_folder() as folder, changed_directory(folder):
            # A compiled region that comes from a cache has fewer facts.
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder.parent / "inductor")
            yield page.slug, run_finding(page, folder)


@contextlib.contextmanager
def project_folder() -> Iterator[Path]:
    """Create an empty folder whose name is always the same, because pictures show it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve() / "project"
        folder.mkdir()
        yield folder


@contextlib.contextmanager
def changed_directory(folder: Path) -> Iterator[None]:
    """Change the working directory in a ``with`` block."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _run_python(code: str, path: Path, names: dict[str, Any]) -> tuple[str, bool]:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        try:
            exec(compile(code, str(path), "exec"), names)  # noqa: S102 - the page's own examples
        except Exception as error:  # noqa: BLE001 - a page may show any exception
            output.write("".join(traceback.format_exception_only(error)))
            return output.getvalue(), True
    return output.getvalue(), False


def _run_command(command: str) -> tuple[str, bool]:
    from autogradviz.cli import main

    _, program, *arguments = shlex.split(command)
    assert program == "autogradviz", f"not a command of autogradviz: {command}"
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        code = main(arguments)
    return output.getvalue(), code != 0


def main() -> None:
    """Run the pages named on the command line, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", type=Path)
    parser.add_argument("--update", action="store_true", help="write the outputs into the pages")
    parser.add_argument("--findings", action="store_true", help="print the findings as JSON")
    options = parser.parse_args()
    os.environ["COLUMNS"] = "80"
    os.environ["AUTOGRADVIZ_NATIVE_BUILD"] = "0"
    if options.findings:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["AUTOGRADVIZ_CACHE"] = folder
            texts = {slug: finding_text(trace) for slug, trace in findings()}
        sys.stdout.write(json.dumps(texts))
        return
    failed = False
    for page in options.pages or PAGES:
        path = page if page.exists() else DOCS / page
        with project_folder() as folder:
            # Without a build of the native engine, all machines record the same events.
            os.environ["AUTOGRADVIZ_CACHE"] = f"{folder.parent}/cache"
            results = list(run_page(path.resolve(), folder))
        text = path.read_text(encoding="utf-8")
        for result in reversed(results):
            if options.update and result.span and not result.is_as_expected:
                output = re.sub(r" +$", "", result.output, flags=re.MULTILINE)
                text = text[: result.span[0]] + output + text[result.span[1] :]
        if options.update:
            path.write_text(text, encoding="utf-8")
        for result in results:
            state = "" if result.is_as_expected else "  DIFFERS"
            failed = failed or not result.is_as_expected
            print(f"{path.name}:{result.line}{state}\n{result.output}")  # noqa: T201
    sys.exit(failed and not options.update)


if __name__ == "__main__":
    main()
