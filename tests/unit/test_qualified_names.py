"""Qualified names of functions, read from their source."""

import linecache
import sys
from types import CodeType

import pytest

from autogradviz.recorder import callable_names as function_qualified_names
from autogradviz.recorder.callable_names import name_in_source, qualified_name

SOURCE = '''
import functools


class Net:
    """Text at the left margin:
def no_function(): pass
    """

    scale = [k for k in range(3)]

    def forward(self, x):
        return [self.inner(y) for y in x]

    @functools.cache
    @staticmethod
    def cached():
        def step(x):
            return (lambda y: y + x)(1)

        class Local:
            def method(self):
                return step(2)

        return Local().method()

    async def later(self): pass

if True:
    def plain(): return lambda: 0
else:
    def plain(): return None
'''


def codes(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


@pytest.mark.parametrize(
    "source", [SOURCE, "".join(linecache.getlines(function_qualified_names.__file__))]
)
def test_names_in_the_source_are_those_of_python(source):
    lines = tuple(source.splitlines(keepends=True))
    # Classes and comprehensions have no frames of their own with these names everywhere.
    found = {
        (each.co_firstlineno, each.co_name): name_in_source(each, lines)
        for each in codes(compile(source, "net.py", "exec"))
    }
    if source is SOURCE:
        names = set(found.values())
        assert {
            "<module>", "Net.forward", "Net.cached", "Net.cached.<locals>.step", "Net.later",
            "Net.cached.<locals>.step.<locals>.<lambda>", "plain", "plain.<locals>.<lambda>",
            "Net.cached.<locals>.Local.method",
        } <= names  # fmt: skip
    if sys.version_info >= (3, 11):
        for each in codes(compile(source, "net.py", "exec")):
            if each.co_name == "__annotate__":  # Python 3.14 adds these; they are not in the source
                continue
            assert found[each.co_firstlineno, each.co_name] == each.co_qualname
            assert qualified_name(each, lines) == each.co_qualname


def test_name_without_source_is_not_qualified():
    code = compile("def f():\n    def g(): pass", "net.py", "exec")
    assert [name_in_source(each, ()) for each in codes(code)] == ["<module>", "f", "g"]
    assert [name_in_source(each, ("def f(:",)) for each in codes(code)] == ["<module>", "f", "g"]
