"""The lines of a program that call modules, changed so that the modules are checkpointed."""

from __future__ import annotations

import ast
from collections import defaultdict
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autogradviz.support.source_lines_and_libraries import (
    forget_changed_lines,
    lines_of,
    parse,
    source_lines,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from autogradviz.analysis.analysis import Analysis
    from autogradviz.analysis.predict_memory import SavedMemoryModel
    from autogradviz.analysis.types import SourceLocation


_OPTIONS: Final = frozenset(
    {"use_reentrant", "context_fn", "determinism_check", "debug", "preserve_rng_state",
     "early_stop"}
)  # fmt: skip
"""The arguments of ``checkpoint`` itself."""


_CODE: Final = """\
from functools import partial
from torch.utils.checkpoint import checkpoint

for name in {names}:{comment}
    module = model.get_submodule(name)
    module.forward = partial(checkpoint, module.forward, use_reentrant=False)
"""


class CallLines:
    """The lines of the user's code that call modules."""

    def __init__(self, analysis: Analysis, model: SavedMemoryModel) -> None:
        """Find the line of each call of a module that runs ops."""
        kinds = {module.name: module.type_name for module in analysis.modules.values()}
        self._lines: dict[str, dict[SourceLocation | None, None]] = defaultdict(dict)
        self._modules: dict[tuple[str, int], dict[str, None]] = defaultdict(dict)
        for module, stack_id in model.first_stacks:
            own = f"{kinds.get(module, '')}.forward"
            stack = analysis.user_stack(stack_id)
            places = [place for place, line in enumerate(stack) if line.function.endswith(own)]
            above = max(places, default=-1) + 1
            line = stack[above] if above < len(stack) else None
            self._lines[module][line] = None
            if line is not None:
                self._modules[line.filename, line.lineno][module] = None

    def of(self, modules: Sequence[str], like: Sequence[str]) -> SourceLocation | None:
        """Return the one line whose change checkpoints some modules and no others.

        Args:
            modules: the first ones of ``like``.
            like: those of their kind.

        Returns:
            None if several lines call the modules, if their call is also that of other modules, or
            if it is not known.
        """
        lines = {line for name in modules for line in self._lines.get(name, ())}
        line = next(iter(lines), None)
        if line is None or len({(each and (each.filename, each.lineno)) for each in lines}) > 1:
            return None
        own = _call_of(line.text.strip(), modules[0])
        inside = tuple(f"{name}." for name in like)
        for other in self._modules[line.filename, line.lineno]:
            if other not in like and not other.startswith(inside):
                call = _call_of(line.text.strip(), other)
                if own is None or call is None or ast.dump(call) == ast.dump(own):
                    return None
        return line


def code_that_checkpoints(analysis: Analysis, modules: Iterable[str]) -> str:
    """Return statements that checkpoint modules of ``model``, to run once it is built."""
    by_model: dict[str, list[str]] = defaultdict(list)
    for name in modules:
        names = analysis.module_names
        by_model[names.root_of(name)].append(names.below_model(name))
    first, *others = (statements_for(tuple(names), root) for root, names in by_model.items())
    return "".join([first, *(each[each.index("\n\n") + 1 :] for each in others)])


def statements_for(names: tuple[str, ...] | str, root: str) -> str:
    """Return statements that checkpoint modules with these names in a model.

    Args:
        names: of the modules, as ``get_submodule`` takes them; or what stands for them.
        root: the name of the model if a comment must have it, else "".
    """
    return _CODE.format(names=names, comment=f"  # model is the {root}" if root else "")


def checkpointed(line: str, name: str, condition: str = "") -> str:
    """Return a line that calls a module with the call in ``checkpoint``, "" if it is not clear.

    Args:
        line: the line, without indentation.
        name: of the module.
        condition: an expression by which only some calls are checkpointed; "{}" is the module.
    """
    call = _call_of(line, name)
    if call is None:
        return ""
    source = ast.get_source_segment(line, call) or ""
    function = ast.unparse(call.func)
    given = [*call.args, *[each.value for each in call.keywords]]
    names = [*[""] * len(call.args), *[f"{each.arg}=" for each in call.keywords]]
    arguments = ", ".join(
        f"{before}{ast.get_source_segment(line, each) or ''}"
        for before, each in zip(names, given, strict=True)
    )
    changed = f"checkpoint({function}, {arguments}, use_reentrant=False)"
    whole, known = _choice_of(line, call)
    changed = known or changed
    if condition:
        changed = f"({changed} if {condition.format(function)} else {source})"
    return line.replace(whole or source, changed)


def _choice_of(line: str, call: ast.Call) -> tuple[str, str]:
    """Return an expression that checkpoints a call under a condition, and what does it; or "".

    ``checkpoint(block, x, use_reentrant=False) if self.saves else block(x)`` is one.
    """
    for node in ast.walk(ast.parse(line)):
        if not isinstance(node, ast.IfExp):
            continue
        for own, other in ((node.body, node.orelse), (node.orelse, node.body)):
            if (
                ast.dump(own) == ast.dump(call)
                and isinstance(other, ast.Call)
                and other.args
                and ast.dump(other.args[0]) == ast.dump(call.func)
                and any(each.arg in _OPTIONS for each in other.keywords)
            ):
                whole, known = (ast.get_source_segment(line, each) for each in (node, other))
                return whole or "", known or ""
    return "", ""


def _call_of(line: str, name: str) -> ast.Call | None:
    """Return the call of a module on a line, None if it is not clear which one it is."""
    try:
        tree = ast.parse(line)
    except SyntaxError:
        return None
    *_, last = name.split(".")
    attribute = next((part for part in reversed(name.split(".")) if not part.isdigit()), "")
    found: dict[str, ast.Call] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        if any(each.arg is None or each.arg in _OPTIONS for each in node.keywords):
            continue
        text = ast.unparse(node.func)
        part = text.rpartition(".")[2]
        is_named = part.partition("[")[0] == attribute
        if is_named and last.isdigit() and "[" not in part and not isinstance(node.func, ast.Name):
            return None  # it calls all of them: a Sequential
        if is_named or (isinstance(node.func, ast.Name) and last.isdigit()):
            found.setdefault(text, node)
    return next(iter(found.values())) if len(found) == 1 else None


def changed_line(location: SourceLocation, name: str, count: int = 0) -> str:
    """Return a line that calls modules with the call in ``checkpoint``.

    Args:
        location: the line.
        name: of the first module.
        count: how many of the modules of a loop are checkpointed, 0 for all.

    Returns:
        "" if the line is not clear; for some of the modules, also if the loop around it is not
        clear, or the file has changed.
    """
    if not count:
        return checkpointed(location.text.strip(), name)
    found = _lines_and_tree(location)
    call = _call_of(location.text.strip(), name)
    if found is None or call is None:
        return ""
    modules = _modules_of_loop(found[1], location.lineno, call.func)
    condition = f"{{}} in tuple({modules})[:{count}]"
    return checkpointed(location.text.strip(), name, condition) if modules else ""


def patch_of(location: SourceLocation, name: str, count: int = 0) -> str:
    """Return a unified diff of a file with a changed line, "" if that or the file is not clear.

    Args:
        location: the line.
        name: of the first module.
        count: how many of the modules of a loop are checkpointed, 0 for all.
    """
    found = _lines_and_tree(location)
    changed = changed_line(location, name, count)
    if found is None or not changed:
        return ""
    lines, tree = found
    line = lines[location.lineno - 1]
    new = [*lines]
    new[location.lineno - 1] = line.replace(line.strip(), changed)
    if not _imports_checkpoint(tree):
        new.insert(_after_first_imports(tree), "from torch.utils.checkpoint import checkpoint\n")
    shown = Path(location.filename).name
    return "".join(unified_diff(lines, new, f"a/{shown}", f"b/{shown}"))


def _lines_and_tree(location: SourceLocation) -> tuple[list[str], ast.Module] | None:
    """Return the file of a line, None if it has changed or is no Python."""
    forget_changed_lines()
    lines = [*source_lines(location.filename)]
    line = lines[location.lineno - 1] if location.lineno <= len(lines) else ""
    if not location.text or line.strip() != location.text.strip():
        return None
    try:
        return lines, parse("".join(lines))
    except (SyntaxError, ValueError):
        return None


def _modules_of_loop(tree: ast.Module, lineno: int, function: ast.expr) -> str:
    """Return the modules that the innermost loop around a line calls one by one, "" if unknown."""
    loops = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.For) and lineno in lines_of(node)[1:]
    ]
    if not loops or not isinstance(function, ast.Name):
        return ""
    loop = max(loops, key=lambda each: each.lineno)
    target, modules = loop.target, loop.iter
    if isinstance(modules, ast.Call) and ast.unparse(modules.func) == "enumerate":
        modules = modules.args[0]
        target = target.elts[1] if isinstance(target, ast.Tuple) else target
    is_plain = isinstance(modules, (ast.Name, ast.Attribute))
    is_target = isinstance(target, ast.Name) and target.id == function.id
    return ast.unparse(modules) if is_plain and is_target else ""


def _imports_checkpoint(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.ImportFrom)
        and node.module == "torch.utils.checkpoint"
        and any(each.name == "checkpoint" and each.asname is None for each in node.names)
        for node in tree.body
    )


def _after_first_imports(tree: ast.Module) -> int:
    """Return the number of lines before which a module has its docstring and first imports."""
    last = 0
    for place, node in enumerate(tree.body):
        is_docstring = not place and isinstance(node, ast.Expr)
        if not is_docstring and not isinstance(node, (ast.Import, ast.ImportFrom)):
            break
        last = lines_of(node)[-1]
    return last
