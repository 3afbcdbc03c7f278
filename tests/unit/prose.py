"""Extract the English text of the repository: docstrings, comments, messages and pages."""

from __future__ import annotations

import ast
import json
import re
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from autogradviz.support import source_lines_and_libraries as parse_source

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
TREES = ("autogradviz", "assets", "notebooks", "docs", "tests", ".ci")
TOP = (*ROOT.glob("*.md"), ROOT / "Makefile", ROOT / "pyproject.toml")
SKIPPED = (
    "autogradviz/render/static/",
    "assets/viewer/types.js",  # generated
    "node_modules/",
    "__pycache__/",
)
SUFFIXES = {".py", ".js", ".mjs", ".ts", ".css", ".md", ".ipynb"}
WORDS_OF_A_MESSAGE = 3


class Text(NamedTuple):
    """A piece of English text: one docstring, comment, message, paragraph or cell."""

    kind: str  # "docstring", "attribute", "comment", "message" or "page"
    line: int
    words: str


def files() -> list[Path]:
    """Return every source file whose language is checked."""
    found = [
        path
        for tree in TREES
        for path in sorted((ROOT / tree).rglob("*"))
        if path.suffix in SUFFIXES and not any(part in name_of(path) for part in SKIPPED)
    ]
    return [*found, *(path for path in TOP if path.exists())]


def name_of(path: Path) -> str:
    """Return a file's path relative to the repository."""
    return path.relative_to(ROOT).as_posix()


@cache
def texts(path: Path) -> tuple[Text, ...]:
    """Return the text of one file; code itself is left out."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return tuple(_python(source))
    if path.suffix in {".js", ".mjs", ".ts", ".css"}:
        return tuple(_javascript(source))
    if path.suffix == ".ipynb":
        return tuple(_notebook(source))
    if path.suffix == ".md":
        return tuple(_markdown(source))
    return tuple(_hash_comments(source))


def _python(source: str) -> Iterator[Text]:
    docstrings = set()
    for node in ast.walk(parse_source.parse(source)):  # a body before the statements in it
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            if isinstance(statement, ast.Expr) and _is_text(statement.value):
                docstrings.add(id(statement.value))
                kind = "attribute" if _is_attribute(node, statement) else "docstring"
                yield Text(kind, statement.lineno, statement.value.value)
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstrings
            and len(node.value.split()) >= WORDS_OF_A_MESSAGE
        ):
            yield Text("message", node.lineno, node.value)
    yield from _python_comments(source)


def _is_attribute(node: ast.AST, statement: ast.stmt) -> bool:
    """Return whether a docstring documents an attribute, a property or a constant."""
    decorators = [ast.unparse(each) for each in getattr(node, "decorator_list", ())]
    return statement is not node.body[0] or any("property" in each for each in decorators)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


# The module `tokenize` takes ten times as long.
PYTHON = re.compile(
    r"""
    (?P<comment>\#[^\n]*)
  | (?P<string>[rbfuRBFU]{0,2}(?:\"{3}(?:\\.|[^\\])*?\"{3}|\'{3}(?:\\.|[^\\])*?\'{3}
      |"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
  | (?P<name>\b[^\W\d]\w*)
    """,
    re.VERBOSE | re.DOTALL,
)


@lru_cache(maxsize=4)
def _tokens(source: str) -> list[tuple[str, int, str]]:
    """Return the kind, line and text of each comment, string and name."""
    tokens, line, counted = [], 1, 0
    for found in PYTHON.finditer(source):
        line += source.count("\n", counted, found.start())
        counted = found.start()
        tokens.append((found.lastgroup or "", line, found.group()))
    return tokens


def _python_comments(source: str) -> Iterator[Text]:
    """Yield comments; those on consecutive lines are one text."""
    begun, words, last = 0, [], -1
    for kind, line, text in _tokens(source):
        if kind != "comment":
            continue
        if words and line != last + 1:
            yield Text("comment", begun, " ".join(words))
            words = []
        begun, last = (begun if words else line), line
        words.append(text.lstrip("#: "))
    if words:
        yield Text("comment", begun, " ".join(words))


JAVASCRIPT = re.compile(
    r"""
    (?P<block>/\*.*?\*/)
  | (?P<line>(?:^|(?<=\s))//[^\n]*(?:\n[ \t]*//[^\n]*)*)
  | (?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`)
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)


def _javascript(source: str) -> Iterator[Text]:
    for found in JAVASCRIPT.finditer(source):
        line = source.count("\n", 0, found.start()) + 1
        text = found.group()
        if found.lastgroup == "block":
            kind = "docstring" if text.startswith("/**") else "comment"
            words = re.sub(r"^\s*\*+ ?", " ", text.strip("/*"), flags=re.MULTILINE)
            yield Text(kind, line, re.sub(r"\{[^}]*\}", "", words).strip())
        elif found.lastgroup == "line":
            yield Text("comment", line, re.sub(r"\s*//\s*", " ", text).strip())
        elif len(text.split()) >= WORDS_OF_A_MESSAGE:
            yield Text("message", line, re.sub(r"\$\{[^}]*\}", "…", text[1:-1]))


def _markdown(source: str) -> Iterator[Text]:
    """Yield paragraphs without code blocks, code spans, link targets and quoted messages."""
    prose = re.sub(r"^```.*?^```", _blank_lines, source, flags=re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^(?: {4}|\t).*$", "", prose, flags=re.MULTILINE)
    prose = re.sub(r"`[^`]*`", "`…`", prose)
    prose = re.sub(r"\]\([^)]*\)", "]", prose)
    for found in re.finditer(r"(?:^[^\n]*\S[^\n]*\n?)+", prose, flags=re.MULTILINE):
        yield Text("page", prose.count("\n", 0, found.start()) + 1, found.group().strip())


def _blank_lines(found: re.Match[str]) -> str:
    return "\n" * found.group().count("\n")


def _notebook(source: str) -> Iterator[Text]:
    for cell in json.loads(source)["cells"]:
        content = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield from _markdown(content)
        else:
            yield from _python(content)


def identifiers(path: Path) -> Iterator[tuple[int, str]]:
    """Yield every identifier of a Python or JavaScript file, with the line of its first use."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        found = [(line, text) for kind, line, text in _tokens(source) if kind == "name"]
    elif path.suffix in {".js", ".mjs", ".ts"}:
        code = JAVASCRIPT.sub(_blank_lines, source)
        found = [
            (number, name)
            for number, line in enumerate(code.splitlines(), 1)
            for name in re.findall(r"[A-Za-z_$][\w$]*", line)
        ]
    else:
        found = []
    seen: set[str] = set()
    for line, name in found:
        if name not in seen:
            seen.add(name)
            yield line, name


def _hash_comments(source: str) -> Iterator[Text]:
    for number, line in enumerate(source.splitlines(), 1):
        if "#" in line:
            yield Text("comment", number, line.partition("#")[2].strip("# "))
