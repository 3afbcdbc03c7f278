"""Writes that can be read from source: by name, without a name, in threads."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.source.assignments import aliases
from autogradviz.diagnose.source.python_numpy_mutating_calls import (
    CONSUMERS,
    METHODS,
    Direction,
    written_by_call,
)
from autogradviz.diagnose.source.source_index import (
    container,
    functions,
    is_named,
    is_string,
    last_name,
    location,
    names_in,
    nodes,
    own_nodes,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import SourceLocation


# --- statements that write a variable or attribute, or create the object it refers to -------------


@dataclass(frozen=True, slots=True)
class Write:
    """One statement that writes a name."""

    lineno: int
    function: str  # qualified
    direction: Direction
    key: str | None = None  # of an item, as in source: "'flag'"
    attribute: bool | None = False  # an attribute, not a variable; None if unknown
    alias: bool = False  # through another name
    indirect: bool = False  # the statement does not name the target
    rebinds: bool = False  # ``name = ...``
    declared: bool = False  # ``global`` or ``nonlocal``
    drains: bool = False  # iterates over it, which changes only an iterator


def writes(filename: str, name: str) -> list[Write]:
    """Return the statements of a file that write a variable or attribute of that name."""
    found = []
    for function, owner in functions(filename):
        declared = any(isinstance(node, (ast.Global, ast.Nonlocal)) and name in node.names
                       for node in own_nodes(owner))  # fmt: skip
        for node in own_nodes(owner):
            for target, direction in _targets(node, name):
                attribute = _is_attribute(container(target))
                line = getattr(node, "lineno", 0)
                assigned = isinstance(node, (ast.Assign, ast.AnnAssign))
                rebinds = assigned and not isinstance(target, ast.Subscript)
                key = _key(target)
                drains = isinstance(node, (ast.For, ast.AsyncFor)) and target in ast.walk(node.iter)
                write = Write(
                    line, function, direction, key, attribute,
                    rebinds=rebinds, declared=declared, drains=drains,
                )  # fmt: skip
                found.append(write)
                break
    found += _through_aliases(filename, name)
    found += _through_methods(filename, name)
    return sorted(found, key=lambda write: write.lineno)


def _through_aliases(filename: str, name: str) -> Iterator[Write]:
    """Yield the statements that change the object of a name through another name."""
    known = set(aliases(filename, name))
    for function, owner in functions(filename):
        for alias in [each for scope, each in known if scope == function]:
            for node in own_nodes(owner):
                for target, direction in _targets(node, alias):
                    # ``table = ...`` rebinds the name; ``table[n] = ...`` writes the object.
                    own = alias != name or isinstance(container(target), ast.Name)
                    if own and _mutates_object(node, target):
                        line = getattr(node, "lineno", 0)
                        yield Write(line, function, direction, _key(target), alias=True)


def _mutates_object(node: ast.AST, target: ast.AST) -> bool:
    """Return whether a statement mutates an object instead of rebinding a name."""
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        return not isinstance(
            node.value, ast.Constant
        )  # items += [x] mutates; a number is replaced
    return isinstance(node, ast.Call) or isinstance(target, ast.Subscript)


def _through_methods(filename: str, name: str) -> Iterator[Write]:
    """Yield the calls of a bound method with a name: ``push = cache.append``, ``push(x)``."""
    bound = {
        last_name(target): METHODS[node.value.attr]
        for _, node in nodes(filename)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute)
        if node.value.attr in METHODS and is_named(node.value.value, name)
        for target in node.targets
    }
    for function, node in nodes(filename) if bound else ():
        direction = bound.get(last_name(node.func)) if isinstance(node, ast.Call) else None
        if direction is not None:
            yield Write(getattr(node, "lineno", 0), function, direction, alias=True)


def _is_attribute(target: ast.AST) -> bool | None:
    return None if isinstance(target, ast.Constant) else not isinstance(target, ast.Name)


def _key(target: ast.AST) -> str | None:
    return ast.unparse(target.slice) if isinstance(target, ast.Subscript) else None


def _targets(node: ast.AST, name: str) -> Iterator[tuple[ast.AST, Direction]]:
    """Yield the targets of that name which a statement writes."""
    if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.NamedExpr)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in (part for each in targets for part in _flat(each)):
            if is_named(target, name):
                yield target, "grew" if isinstance(target, ast.Subscript) else "changed"
            elif isinstance(target, ast.Subscript) and is_string(target.slice, name):
                yield ast.Constant(name), "changed"  # vars(config)["name"] = ...
    elif isinstance(node, (ast.For, ast.AsyncFor)):
        through = isinstance(node.iter, ast.Call) and last_name(node.iter.func) in CONSUMERS
        moved = node.iter.args if through else [node.iter]  # type: ignore[attr-defined]
        yield from (
            (part, "changed") for part in (*_flat(node.target), *moved) if is_named(part, name)
        )
    elif isinstance(node, (ast.With, ast.AsyncWith)):
        given = [item.optional_vars for item in node.items if item.optional_vars is not None]
        yield from ((part, "changed") for each in given for part in _flat(each)
                    if is_named(part, name))  # fmt: skip
    elif isinstance(node, ast.Delete):
        yield from ((target, "shrank") for target in node.targets if is_named(target, name))
    elif isinstance(node, ast.Call):
        yield from written_by_call(node, name)


def _flat(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, (ast.Tuple, ast.List)):
        for part in target.elts:
            yield from _flat(part)
    elif isinstance(target, ast.Starred):
        yield from _flat(target.value)
    else:
        yield target


def creations(filename: str, name: str) -> list[tuple[int, str]]:
    """Return line and function of the call or decorator that created the object of a name."""
    found = []
    for function, owner in functions(filename):
        found += [
            (node.lineno, function)
            for node in own_nodes(owner)
            if isinstance(node, ast.Assign)
            and any(is_named(target, name) for target in node.targets)
            and any(isinstance(part, ast.Call) for part in ast.walk(node.value))
        ]
        decorators = getattr(owner, "decorator_list", ())
        if decorators and function.rpartition(".")[2] == name:
            found.append((decorators[0].lineno, function))
    return sorted(found)


def closures(filename: str, enclosing: str, name: str) -> list[int]:
    """Return the lines that define functions inside another which read one of its variables."""
    found = []
    for function, owner in functions(filename):
        inner = function.removeprefix(f"{enclosing}.<locals>.")
        if inner != function and "." not in inner and name in names_in(filename, function):
            found.append(getattr(owner, "lineno", 0))
        if function == enclosing:
            found += [
                node.lineno
                for node in own_nodes(owner)
                if isinstance(node, ast.Lambda)
                and any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(node.body))
            ]
    return sorted(found)


def attribute_assignment(near: SourceLocation | None, name: str) -> SourceLocation | None:
    """Return the line, in the function of a location, that sets an attribute of that name."""
    if near is None:
        return None
    for write in writes(near.filename, name):
        found = location(near.filename, write.lineno, write.function)
        if write.function == near.function and f".{name}" in found.text:
            return found
    return None


# --- writes in other threads, found in the source: ops of other threads are not recorded ----------


_STARTERS: Final = frozenset(
    {"Thread", "Timer", "Process", "submit", "run_in_executor", "to_thread", "apply_async",
     "start_new_thread"}
)  # fmt: skip
_DEPTH: Final = 4  # calls followed by name
_LAST: Final = 1 << 30


def writes_in_threads(filename: str) -> list[tuple[int, str]]:
    """Return line and function of the in-place writes in functions that run in other threads."""
    started = _callees(
        filename,
        {
            name
            for _, node in source.nodes(filename)
            if isinstance(node, ast.Call)
            for name in _thread_targets(node)
        },
    )
    return sorted(
        (getattr(node, "lineno", 0), function)
        for function, node in source.nodes(filename)
        if function.rpartition(".")[2] in started and _writes(node)
    )


def thread_dispatches(filename: str, wanted: str) -> list[tuple[int, str]]:
    """Return line and function of the calls that run ``wanted`` in another thread."""
    return sorted(
        (node.lineno, function)
        for function, node in source.nodes(filename)
        if isinstance(node, ast.Call) and wanted in _callees(filename, _thread_targets(node))
    )


def _thread_targets(call: ast.Call) -> set[str]:
    """Return the last names of the functions that one call runs in another thread."""
    if source.last_name(call.func) not in _STARTERS:
        return set()
    parts = (*call.args, *[word.value for word in call.keywords])
    called = {source.last_name(part.func) for part in parts if isinstance(part, ast.Call)}
    inside = {name for part in parts if isinstance(part, ast.Lambda)
              for node in ast.walk(part) if (name := source.last_name(node))}  # fmt: skip
    return ({source.last_name(part) for part in parts} | called | inside) - {""}


def _callees(filename: str, new: set[str]) -> set[str]:
    """Return names of functions, and of the functions that they call, directly or indirectly."""
    names: set[str] = set()
    for _ in range(_DEPTH if new else 0):
        names |= new
        new = {
            inner
            for function, _ in source.functions(filename)
            if function and function.rpartition(".")[2] in new
            for inner in source.called_names(filename, function, 0, _LAST)
        } - names
    return names


def _writes(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        name = node.func.attr
        in_place = name.endswith("_") and not name.endswith("__")
        return in_place or any(word.arg in {"out", "inplace"} for word in node.keywords)
    if isinstance(node, ast.AugAssign):
        counter = isinstance(node.target, ast.Name) and isinstance(node.value, ast.Constant)
        return not counter
    if not isinstance(node, ast.Assign):
        return False
    parts = [part for t in node.targets for part in getattr(t, "elts", [t])]
    return any(isinstance(part, ast.Subscript) for part in parts)


# --- statements that write an attribute or an item without naming it ------------------------------
#
# ``self["mode"] = ...`` names only the key, ``setattr(config, key, value)`` names nothing, and
# ``log.setLevel(...)`` calls a setter of a library.


_SETTERS: Final = frozenset({"setattr", "delattr", "__setattr__"})
_TABLES: Final = frozenset({"_parameters", "_buffers", "_modules", "__dict__"})
_BY_KEY: Final[dict[str, Direction]] = {"pop": "shrank", "setdefault": "grew"}


def indirect_writes(filename: str, name: str, key: str | None) -> list[Write]:
    """Return the statements that may write an attribute or an item indirectly.

    Args:
        filename: the file.
        name: the attribute or variable.
        key: the key of an item as in source, ``"'mode'"``; None for an attribute. Only string keys
            are searched: numbers are too common.
    """
    word = ast.literal_eval(key) if key is not None and key[:1] in {"'", '"'} else None
    return [
        Write(getattr(node, "lineno", 0), function, direction, key, indirect=True)
        for function, node in nodes(filename)
        for direction in _directions(node, name, word)
    ]


def _directions(node: ast.AST, name: str, key: str | None) -> Iterator[Direction]:
    if isinstance(node, ast.Call):
        yield from _called(node, name, key)
    elif isinstance(node, (ast.Assign, ast.AugAssign, ast.Delete)):
        targets = [node.target] if isinstance(node, ast.AugAssign) else node.targets
        if key is not None and any(
            isinstance(target, ast.Subscript) and is_string(target.slice, key) for target in targets
        ):
            yield "shrank" if isinstance(node, ast.Delete) else "grew"
        elif any(_into_table(target, name) for target in targets) or (
            isinstance(node, ast.AugAssign)
            and getattr(node.target, "attr", "") == "__dict__"
            and _may_hold(node.value, name)
        ):
            yield "changed"


def _into_table(target: ast.AST, name: str) -> bool:
    """Return whether an item of a module's tables is set: ``module._parameters[n] = ...``."""
    if not isinstance(target, ast.Subscript) or not isinstance(target.value, ast.Attribute):
        return False
    known = isinstance(target.slice, ast.Constant) and not is_string(target.slice, name)
    return target.value.attr in _TABLES and not known


def _called(node: ast.Call, name: str, key: str | None) -> Iterator[Direction]:
    called = getattr(node.func, "attr", getattr(node.func, "id", ""))
    if called in _SETTERS:
        if len(node.args) > 1 and not isinstance(node.args[1], ast.Constant):
            yield "changed"  # the name is known only at run time
    elif called == "__init__" and isinstance(node.func, ast.Attribute):
        if not isinstance(node.func.value, ast.Call):  # super().__init__() runs during construction
            yield "changed"
    elif called == "update":
        if _updates(node, name, key):
            yield "grew"
    elif called.lower().replace("_", "") == f"set{name.lower().replace('_', '')}":
        yield "changed"
    elif called in _BY_KEY and key is not None and node.args and is_string(node.args[0], key):
        yield _BY_KEY[called]


def _updates(node: ast.Call, name: str, key: str | None) -> bool:
    """Return whether a call of ``update`` may write the item or the attribute."""
    if key is not None and any(word.arg == key for word in node.keywords):
        return True
    given = [*node.args, *[word.value for word in node.keywords if word.arg is None]]
    called = ast.unparse(node.func)
    if key is None and not ("__dict__" in called or called.startswith("vars(")):
        return False
    return any(_may_hold(part, key or name) for part in given)


def _may_hold(given: ast.expr, key: str) -> bool:
    """Return whether a dictionary expression may contain a key; a display shows its keys."""
    if isinstance(given, ast.Dict) and all(isinstance(each, ast.Constant) for each in given.keys):
        return any(each is not None and is_string(each, key) for each in given.keys)
    return not is_named(given, "self")
