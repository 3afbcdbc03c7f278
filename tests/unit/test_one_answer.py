"""One answer to each question: the table in ARCHITECTURE.md names the module that has it.

The last column of the table says what no other module may have: ``name``, a name, a string or an
imported module; ``name()``, a call, and ``name("text")``, one with this text, also with an index
behind it; ``def name``, a function of this name; ``"text"``, text in a string that is no docstring;
``len(name)``, a count of what has this name; ``NAME =``, a constant of this name, also with an
underscore before it.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest

import autogradviz
from autogradviz.support.source_lines_and_libraries import parse

PACKAGE = Path(autogradviz.__file__).parent
PAGE = PACKAGE.parent / "ARCHITECTURE.md"
CODE = re.compile(r"`([^`]+)`")


def answers():
    """Yield question, modules and marks of each row of the table."""
    section = PAGE.read_text(encoding="utf-8").partition("## One answer to each question\n")[2]
    for line in section.partition("\n## ")[0].splitlines():
        if line.startswith("| ") and CODE.search(line):
            question, modules, marks = (part.strip() for part in line.strip("| ").split(" | "))
            yield question, CODE.findall(modules), CODE.findall(marks)


ANSWERS = list(answers())
MARKS = [(mark, modules) for _, modules, marks in ANSWERS for mark in marks]


class Content(NamedTuple):
    """The content of a module."""

    names: set[str]  # names, strings and imported modules
    called: set[str]
    counted: set[str]  # in the arguments of len, sum and count
    defined: set[str]  # functions
    constants: set[str]  # without the underscore before them
    texts: list[str]  # strings that are no docstrings
    has_order: bool
    has_sweep: bool


def content_of(tree):
    """Return the content of a tree."""
    has_order, has_sweep = (any(map(each, ast.walk(tree))) for each in (is_order, is_sweep))
    found = Content(set(), set(), set(), set(), set(), [], has_order, has_sweep)
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in tree.body:
        targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
        found.constants.update(each.id.lstrip("_") for each in targets if hasattr(each, "id"))
    for node in ast.walk(tree):
        found.names.update(names_of(node))
        if isinstance(node, ast.FunctionDef):
            found.defined.add(node.name)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            found.texts.append(node.value)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Call):
            text = ast.unparse(node).replace("'", '"')
            found.called.add(text[text.rfind(".", 0, text.rfind("(")) + 1 :])
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", "") or getattr(node.func, "attr", "")
            found.called.add(name)
            texts = (arg.value for arg in node.args if isinstance(arg, ast.Constant))
            found.called.update(f'{name}("{text}")' for text in texts)
            if name in {"len", "sum", "count"}:
                parts = (part for arg in node.args for part in ast.walk(arg))
                found.counted.update(name for part in parts for name in names_of(part))
    return found


def names_of(node):
    """Return the names that a node itself has."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.alias):
        return [node.name, node.name.rpartition(".")[2]]
    found = (getattr(node, name, None) for name in ("id", "attr", "name", "module"))
    return [name for name in found if name]


def has(found, mark):
    """Return whether a module has what a mark stands for."""
    if mark.startswith("len("):
        return mark[4:-1] in found.counted
    if mark.startswith("def "):
        return mark[4:] in found.defined
    if mark.endswith(" ="):
        return mark[:-2] in found.constants
    if mark.startswith('"'):
        return any(mark[1:-1] in text for text in found.texts)
    if mark.endswith((")", "]")):
        return mark.removesuffix("()") in found.called
    return mark in found.names


def is_order(node):
    """Return whether a dict or a sequence gives the three confidences numbers, or an order."""
    words = {"certain", "likely", "hint"}
    if isinstance(node, ast.Dict):
        keys = {getattr(key, "value", None) for key in node.keys}
        values = [getattr(value, "value", None) for value in node.values]
        return keys == words and all(isinstance(value, int) for value in values)
    if isinstance(node, (ast.Tuple, ast.List)):
        return {getattr(each, "value", None) for each in node.elts} == words
    return False


def is_sweep(node):
    """Return whether a loop adds to a sum, and keeps the highest sum so far."""
    if not isinstance(node, ast.For):
        return False
    parts = [part for statement in node.body for part in ast.walk(statement)]
    sums = {part.target.id for part in parts
            if isinstance(part, ast.AugAssign) and isinstance(part.target, ast.Name)}  # fmt: skip
    return any(
        isinstance(part, ast.If)
        and variables(part.test) & sums
        and isinstance(part.body[0], ast.Assign)
        and variables(part.body[0].value) & variables(part.test) & sums
        and variables(part.body[0].targets[0]) & variables(part.test)
        for part in parts
    )


def variables(node):
    """Return the names of variables in an expression."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


@pytest.fixture(scope="module")
def contents():
    """The content of each module, but of those that define and record what others read."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith(("events/", "recorder/")):
            found[name] = content_of(parse(path.read_text(encoding="utf-8")))
    return found


def test_modules_of_the_table_have_an_answer(contents):
    assert len(ANSWERS) >= 8
    for question, modules, marks in ANSWERS:
        assert modules, question
        found = [contents[module] for module in modules]
        assert not marks or any(has(each, mark) for each in found for mark in marks), question


@pytest.mark.parametrize(("mark", "modules"), MARKS, ids=[mark for mark, _ in MARKS])
def test_no_other_module_answers_the_question(contents, mark, modules):
    assert [name for name, each in contents.items() if has(each, mark)] in ([], modules)


def test_there_is_one_order_of_confidences(contents):
    assert [name for name, each in contents.items() if each.has_order] == ["diagnose/finding.py"]


def test_there_is_one_sweep_for_the_highest_sum(contents):
    assert [name for name, each in contents.items() if each.has_sweep] == [
        "event_log/saved_tensor_lifetimes.py"
    ]


@pytest.mark.parametrize(
    ("source", "mark"),
    [
        ("def is_view(op): return not op.written", "def is_view"),
        ("ours = re.compile(r'[/](?:site|dist)-packages[/]')", '"-packages"'),
        ("while frame: frame = frame.f_back", "f_back"),
        ("len(log.of(OptimizerStepped))", "len(OptimizerStepped)"),
        ("log.count(events.OptimizerStepped)", "len(OptimizerStepped)"),
        ("sum(1 for _ in log.of(StepEnded))", "len(StepEnded)"),
        ("if name.endswith('Backward'): pass", 'endswith("Backward")'),
        ("name = event.op.split('.')[1]", 'split(".")[1]'),
        ("import linecache", "linecache"),
        ("from difflib import SequenceMatcher", "SequenceMatcher"),
        ("types.SourceLocation(filename='')", "SourceLocation()"),
        ("CLEARING = {'zero_', '_foreach_zero_'}", "_foreach_zero_"),
        ("def plural(count, word): ...", "plural"),
    ],
)
def test_second_answers_are_found(source, mark):
    assert has(content_of(ast.parse(source)), mark)
    assert not has(content_of(ast.parse("x = log.of(BackwardStarted)")), mark)


def test_second_orders_are_found():
    [rank, words, colors] = ast.parse(
        "{'certain': 0, 'likely': 1, 'hint': 2}\n('hint', 'likely', 'certain')\n"
        "{'certain': 'red', 'likely': 'blue', 'hint': 'gray'}"
    ).body
    assert [is_order(each.value) for each in (rank, words, colors)] == [True, True, False]


def test_second_sweeps_are_found():
    [sweep, total] = ast.parse(
        "for at, change in sorted(changes):\n"
        "    held += change\n    if held > peak:\n        peak, moment = held, at\n"
        "for change in changes:\n    held += change\n    found.append(held)"
    ).body
    assert [is_sweep(each) for each in (sweep, total)] == [True, False]
