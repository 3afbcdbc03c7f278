"""The description of one bug: where it is, what it needs, and how its symptom shows."""

from __future__ import annotations

import importlib.util
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

HERE = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Case:
    """A fix in a public repository. Its parent commit is the bug.

    Attributes:
        repository: owner and name.
        fix: the commit that fixes the bug.
        bug: the commit with the bug; by default the first parent of the fix.
        license: of the repository, by its SPDX identifier.
        kind: the kind of bug.
        what: the bug in a sentence.
        paths: the files to extract, from each of the two commits.
        within: parts of the diff that are the fix, by file, as ranges of lines of the bug; by
            default the whole diff of ``paths``.
        also: lines that are as good a place for the change, by file.
        stubs: source text of modules that stand for absent ones, by name.
        steps: how many training steps run.
        options: of ``autogradviz.record`` for the second recording, which is the one that is
            scored; by default there is only the plain one.
    """

    repository: str
    fix: str
    bug: str = ""
    license: str
    kind: str
    what: str
    paths: tuple[str, ...]
    within: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    also: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    stubs: Mapping[str, str] = field(default_factory=dict)
    steps: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Run:
    """The values of one run of a driver, by training step.

    Attributes:
        error: the exception with its message, "" without one.
        values: what the step returned.
        grads: the gradients of the parameters after the step, by name.
        live: the number of live tensors after the step.
        digests: values and gradients, as bytes; the only ones of a run that is recorded.
    """

    error: str = ""
    values: list[dict[str, Any]] = field(default_factory=list)
    grads: list[dict[str, torch.Tensor]] = field(default_factory=list)
    live: list[int] = field(default_factory=list)
    digests: list[list[tuple[str, Any]]] = field(default_factory=list)

    @property
    def losses(self):
        return [float(values["loss"]) for values in self.values]

    def has_nan(self):
        """Return whether a loss or a gradient is NaN or infinite."""
        grads = (grad for step in self.grads for grad in step.values())
        return not (
            all(map(math.isfinite, self.losses)) and all(bool(g.isfinite().all()) for g in grads)
        )

    def norm(self, prefix="", step=-1):
        """Return the norm of all gradients whose name has a prefix."""
        found = [g.double().norm() for n, g in self.grads[step].items() if n.startswith(prefix)]
        return float(torch.stack(found).norm()) if found else 0.0

    def missing(self, prefix="", step=-1):
        """Return whether no parameter with a prefix has a gradient other than zero."""
        return self.norm(prefix, step) == 0.0

    def grows(self):
        """Return whether each step leaves more tensors than the one before."""
        return all(after > before for before, after in zip(self.live[1:], self.live[2:]))

    def same(self, other):
        """Return whether error, values and gradients are bit for bit those of another run."""
        return self.error == other.error and self.digests == other.digests


def load(path: Path) -> ModuleType:
    """Return the module of a case file."""
    spec = importlib.util.spec_from_file_location(f"history_case_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def case_files(folder: Path = HERE / "cases") -> list[Path]:
    return sorted(folder.glob("[a-z]*.py"))


def count_nodes(value: Any) -> int:
    """Return the number of nodes of the graph of a value; 0 for one without a graph."""
    found, todo = set(), [getattr(value, "grad_fn", None)]
    while todo:
        node = todo.pop()
        if node is not None and node not in found:
            found.add(node)
            todo.extend(child for child, _ in node.next_functions)
    return len(found)
