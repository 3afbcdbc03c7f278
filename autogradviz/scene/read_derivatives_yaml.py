"""PyTorch's table of derivatives: the formulas of each node.

PyTorch generates its nodes from ``derivatives.yaml``, which is in the wheel. The table needs no
YAML parser: an entry has one line for each key.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


TABLE: Final = Path("packaged", "autograd", "derivatives.yaml")

_ENTRY: Final = re.compile(r"^- name: +(\w+)(?:\.\w+)?\((.*)\) -> (.*)$")
_KEY: Final = re.compile(r"^ +(\w+(?:, *\w+)*): *(.*)$")


@dataclass(frozen=True, slots=True)
class Derivative:
    """One entry of the table.

    Attributes:
        op: "softmax".
        arguments: names of its tensor arguments.
        formulas: the formula of each gradient, by the arguments that it belongs to.
    """

    op: str
    arguments: tuple[str, ...]
    formulas: tuple[tuple[str, str], ...]


@cache
def read_derivatives() -> dict[str, Derivative]:
    """Return the entries of the installed PyTorch by the name of the node's class.

    Empty if PyTorch is not installed or has no table.
    """
    spec = find_spec("torchgen")
    folders = spec.submodule_search_locations if spec else None
    for folder in folders or ():
        table = Path(folder) / TABLE
        if table.is_file():
            return parse_derivatives(table.read_text(encoding="utf-8"))
    return {}


def parse_derivatives(text: str) -> dict[str, Derivative]:
    """Return the entries of a table by the name of the node's class."""
    found: dict[str, Derivative] = {}
    counts: Counter[str] = Counter()
    for entry in re.split(r"^(?=- name: )", text, flags=re.MULTILINE)[1:]:
        head, *lines = _joined_lines(entry)
        parsed = _ENTRY.match(head)
        if parsed is None:
            continue
        op, arguments, _ = parsed.groups()
        names = tuple(re.findall(r"(\w+)(?:=[^,]+)?(?:,|$)", arguments))
        tensors = tuple(
            name for name in names if re.search(rf"Tensor\S*(?:\[\])?\S* {name}\b", arguments)
        )
        formulas = tuple(
            (keys, formula)
            for keys, formula in _formulas(lines)
            if all(key in names for key in re.split(r", *", keys))
        )
        if not any(formula != "non_differentiable" for _, formula in formulas):
            continue
        # The naming of PyTorch's generator: title case, numbered in the order of the table.
        prefix = "".join(part.title() for part in op.split("_")) + "Backward"
        prefix = prefix.replace("ForwardBackward", "Backward")
        found[f"{prefix}{counts[prefix]}"] = Derivative(op.strip("_"), tensors, formulas)
        counts[prefix] += 1
    return found


def _joined_lines(entry: str) -> list[str]:
    """Return the lines of an entry, without comments, each continuation on the line before it."""
    lines: list[str] = []
    for line in entry.splitlines():
        text = line.split(" #")[0].rstrip()
        if not text or text.lstrip().startswith("#"):
            continue
        if lines and not _KEY.match(text):
            lines[-1] += f" {text.strip()}"
        else:
            lines.append(text)
    return lines


def _formulas(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the keys and formulas of an entry; of several dispatch keys, those of the default."""
    block = ""
    for line in lines:
        keys, formula = _KEY.match(line).groups()  # type: ignore[union-attr]
        depth = len(line) - len(line.lstrip())
        if keys == "dispatch" or (depth == 4 and not formula):  # noqa: PLR2004 - of the table
            block = keys
        elif depth == 2 or block == "Default":  # noqa: PLR2004
            yield keys, formula.strip("\"'")
