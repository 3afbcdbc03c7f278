"""One word for one meaning in all that the viewer shows and the terminal prints."""

from __future__ import annotations

import re
from itertools import chain

import prose
import pytest

# A pattern, and the word of docs/viewer.md, "What the bytes mean", or of PyTorch to use instead.
SYNONYMS = {
    r"\bre-?runs?\b|\bre-?ran\b|\bre-?comput(?:e|ation) again\b|\brematerializ\w+": "recompute",
    r"\bre-comput\w+": "recompute, without a hyphen",
    r"\bactivations?\b": "saved tensor",
    r"\b(?:fwd|bwd|backprop\w*|(?:forward|backward) pass(?:es)?)\b": "forward, backward",
    r"\b(?:wall|wall[- ]clock|elapsed|running|run) time\b|\bruntime of\b": "duration, time",
    r"\bgrad[ -]fns?\b|\bgradient functions?\b|\bvert(?:ex|ices)\b|\bautograd ops?\b": "node",
    r"\bsub-?modules?\b|(?<![:.])\blayers?\b(?!\.)": "module",
    r"\bcheckpoint(?:ed|ing)? (?:segments?|sections?|blocks?)\b": "checkpoint region",
    r"\b(?:high[- ]water|max(?:imum)? memory|memory peak|peak memory)\b": "held at peak",
    r"\bevict\w*\b|\bde-?allocat\w+": "released",
    r"\b(?:back|stack) ?trac(?:e|es)\b": "call stack",
    r"\bproblems? (?:was|were) found\b|\b(?:issues?|warnings?) found\b": "finding",
    r"\bin-place modif\w+|\bmodif\w+ in[- ]place\b": "written in place",
    r"\bmega ?bytes\b|\b[MK]iB\b|\b(?-i:KB)\b": "MB, kB",
}
SYNONYMS = {re.compile(pattern, re.IGNORECASE): word for pattern, word in SYNONYMS.items()}

LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`')
COMMENT = re.compile(r"/\*.*?\*/|^\s*//[^\n]*", re.DOTALL | re.MULTILINE)
PRINTING = ("scene", "render", "cli", "trace_method_results", "causes", "comparison")
"""Packages of which each message is shown or printed."""


def shown_texts(path):
    """Return the texts of one file that a user can see."""
    if path.suffix == ".js":
        code = COMMENT.sub("", path.read_text(encoding="utf-8"))
        literals = [plain or template for plain, template in LITERAL.findall(code)]
        return [re.sub(r"\$\{[^{}]*\}", "…", text) for text in literals]
    return [text.words for text in prose.texts(path) if text.kind == "message"]


def shown_files():
    viewer = prose.ROOT / "assets" / "viewer"
    found = [path for path in sorted(viewer.rglob("*.js")) if path.name != "types.js"]
    for package in PRINTING:
        found += sorted((prose.ROOT / "autogradviz" / package).rglob("*.py"))
    return found


def synonyms(text):
    return [
        f"{found[0]}: {word}" for each, word in SYNONYMS.items() for found in each.finditer(text)
    ]


def test_texts_that_are_shown_have_one_word_for_one_meaning():
    texts = {prose.name_of(path): shown_texts(path) for path in shown_files()}
    assert sum(map(len, texts.values())) > 3_000  # the texts are found
    found = {name: [*chain.from_iterable(map(synonyms, lines))] for name, lines in texts.items()}
    assert {name: words for name, words in found.items() if words} == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3 activations were saved", ["activations: saved tensor"]),
        ("wall time", ["wall time: duration, time"]),
        ("NativeLayerNormBackward0 of layer_norm, saved", []),
    ],
)
def test_synonyms_are_found(text, expected):
    assert synonyms(text) == expected
