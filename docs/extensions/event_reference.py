"""Sphinx extension: ``{event-reference}`` lists all event types, generated from the schema."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from dataclasses import fields
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from sphinx.util.docutils import SphinxDirective

from autogradviz import events
from autogradviz.event_log.rows_to_arrow import schema
from autogradviz.events.field_types import traits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docutils import nodes
    from sphinx.application import Sphinx

# The base class's module, then a module for each subject, in the order of the event types.
MODULES = [
    sys.modules[name]
    for name in dict.fromkeys(kind.__module__ for kind in (events.Event, *events.EVENT_TYPES))
]
FIELD = re.compile(r"^    (\w+): .*?(?:  # (.*))?$")
PRIVATE = {"path": "a path", "source": "source text", "value": "a value of the user"}


def sections() -> Iterator[tuple[str, list[type[events.Event]]]]:
    """Yield the title of each subject with its event types, in the order of their definition."""
    for module in MODULES[1:]:
        title = (module.__doc__ or "").split(":")[0].rstrip(".")
        yield title, [kind for kind in events.EVENT_TYPES if kind.__module__ == module.__name__]


def comments() -> dict[str, dict[str, str]]:
    """Return the comment of each field, by class and field."""
    found: dict[str, dict[str, str]] = {}
    for module in MODULES:
        source = inspect.getsource(module)
        lines = source.splitlines()
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef):
                own = [each for each in node.body if isinstance(each, ast.AnnAssign)]
                matches = [FIELD.match(lines[each.lineno - 1]) for each in own]
                found[node.name] = {each[1]: each[2] or "" for each in matches if each}
    return found


COMMENTS = comments()


def comment_of(kind: type[events.Event], name: str) -> str:
    """Return the comment of a field, which a base class may define."""
    return next(COMMENTS[k.__name__][name] for k in kind.__mro__ if name in COMMENTS[k.__name__])


def type_text(hint: Any) -> str:
    """Return the type of a field as in Python; the values of a ``Literal`` are listed."""
    if get_origin(hint) is Literal:
        return " ".join(f'`"{value}"`' for value in get_args(hint))
    parts = get_args(hint)
    if get_origin(hint) is tuple:
        return f"`tuple[{parts[0].__name__}, ...]`"
    if type(None) in parts:
        (other,) = (part for part in parts if part is not type(None))
        return f"{type_text(other)} or `None`"
    return f"`{hint.__name__}`"


def row(kind: type[events.Event], name: str, hint: Any) -> str:
    """Return one field's row of a table."""
    rules = traits(kind) if kind in events.EVENT_TYPES else None
    notes = [comment_of(kind, name)]
    if rules:
        notes += [f"refers to: {each.target}" for each in rules.references if each.name == name]
        privacy = rules.privacy[[each.name for each in fields(kind)].index(name)]
        notes += [f"private: {PRIVATE[privacy]}"] if privacy else []
    text = "; ".join(note for note in notes if note).replace("|", "\\|")
    return f"| `{name}` | {type_text(hint)} | {as_markdown(text)} |"


def as_markdown(text: str) -> str:
    """Return the text of a docstring or comment as Markdown."""
    return text.replace("``", "`").replace("*", "\\*")


def description(kind: type[events.Event]) -> str:
    """Return an event's docstring and the table of its fields as Markdown."""
    hints = get_type_hints(kind)
    common = () if kind is events.Event else events.field_names(events.Event)
    rows = [
        row(kind, each.name, hints[each.name]) for each in fields(kind) if each.name not in common
    ]
    table = ["| field | type | meaning |", "|---|---|---|", *rows] if rows else []
    return "\n".join([as_markdown(inspect.getdoc(kind) or ""), "", *table, ""])


def literal_types() -> Iterator[str]:
    """Yield a definition of each named set of values, with its documentation."""
    pairs = (pairwise(ast.parse(inspect.getsource(module)).body) for module in MODULES)
    for node, following in chain.from_iterable(pairs):
        if (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and get_origin(getattr(events, node.target.id, None)) is Literal
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
        ):
            values = " ".join(f'`"{v}"`' for v in get_args(getattr(events, node.target.id)))
            text = as_markdown(textwrap.dedent(str(following.value.value)))
            yield f"`{node.target.id}`\n: {values}\n\n{textwrap.indent(text, '  ')}\n"


def document() -> str:
    """Return the reference of all events as Markdown."""
    parts = ["## Fields of every event\n", description(events.Event)]
    for title, kinds in sections():
        parts.append(f"## {title[0].upper()}{title[1:]}\n")
        parts += [f"### {kind.__name__}\n\n{description(kind)}" for kind in kinds]
    return "\n".join([*parts, "## Sets of values\n", *literal_types()])


def column_table() -> str:
    """Return the columns of a trace file as a Markdown table."""
    users: dict[str, list[str]] = {}
    for kind in events.EVENT_TYPES:
        for name in events.field_names(kind):
            users.setdefault(name, []).append(kind.__name__)
    rows = []
    for column in schema():
        kinds = users.get(column.name, [])
        where = (
            "every row"
            if column.name in {"kind", *events.field_names(events.Event)}
            else ", ".join(f"`{kind}`" for kind in kinds)
        )
        rows.append(f"| `{column.name}` | `{column.type}` | {where} |")
    return "\n".join(["| column | Arrow type | rows |", "|---|---|---|", *rows])


class Generated(SphinxDirective):
    """Inserts generated Markdown."""

    text: Any

    def run(self) -> list[nodes.Node]:
        """Return the parsed text."""
        self.env.note_dependency(events.__file__)
        return self.parse_text_to_nodes(type(self).text(), allow_section_headings=True)


class EventReference(Generated):
    """All event types."""

    text = staticmethod(document)


class TraceColumns(Generated):
    """All columns of a trace file."""

    text = staticmethod(column_table)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension."""
    app.add_directive("event-reference", EventReference)
    app.add_directive("trace-columns", TraceColumns)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
