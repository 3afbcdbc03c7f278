"""Text is plain technical English: no noun clauses for nouns, no house words, American spelling.

``python tests/unit/test_language.py`` lists what is rejected, file by file.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from typing import TYPE_CHECKING

import prose
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# The first line of a docstring names a thing or says what the function does. The docstring of an
# attribute or a property may begin with "Whether", "When", "How" or "Where".
NOUN_CLAUSE = {
    "docstring": re.compile(
        r"(?:Return|Yield|Say|Tell|Give)s? (?:what|where|who|whose|whom|how|which|that which)\b"
        r"|(?:What|Who|Whose|Whom|Which|Where|How|When|Whether)\b"
    ),
    "attribute": re.compile(r"(?:What|Who|Whose|Whom|Which)\b"),
}

# A pattern, and the standard term to use instead.
HOUSE_WORDS = {
    r"\b(?:tells?|told|telling) of\b": "emit, report",
    r"\b(?:is|are|was|were|be|been|being|not|never|gets?) told\b(?! apart)": "reported, identified",
    r"\btold (?:by|from|when|where|as|in|so|what|how|else|without|to|beside)\b": (
        "reported, identified"
    ),
    r"\btells? (?:what|who|whose|none|each)\b": "report, state",
    r"\btellers?\b": "emitter",
    r"\bseams?\b": "hook point",
    r"\b(?:let|lets|letting) (?:\w+ )?go\b": "release, free",
    r"\b(?:taken|takes?|took|taking) back\b": "unpacked, restored",
    r"\b(?:stand|stands|stood|step|steps|stepped) aside\b": "temporarily disabled",
    r"\bpennants?\b": "parameter badge",
    r"\banew\b": "again",
    r"\bbesides\b|\bbeside(?=\s*[.,;:)¶])": "also, next to it",
    r"\b(?:stand|stands|stood|standing) beside\b": "is next to",
    r"\b(?:somebody|nobody|whoever|whomever)\b": "name the actor",
    r"\b(?:as|was|were|is|are|been|ever|never|that|be|already|not) met\b"
    r"(?= ¶| (?:again|by|in|at|the)\b)"
    r"|\bmet (?:again|anew|for)\b": "seen, registered",
    r"\b(?:is|are|was|were|be|been|not|still|also) said\b|\bsaid (?:of|so|by|in|beside|only)\b": (
        "reported, printed"
    ),
    r"\b(?:is|are|was|were|be|been|what|who|that|first|then|not|it) asked (?:for|of)\b"
    r"|\basked for\b(?= by\b| ?[.,;:)¶])": "requested",
    r"\b(?:is|are|was|were) (?:not )?there to\b": "use the verb",
    r"\bcrumbs\b": "breadcrumbs",
    r"\batlas\b": "scene index",
    r"\bthrows? (?:a|the|one|its|each|several|any) switch\b|\bswitch(?:es)? .{0,20}\bthrown\b": (
        "change a mode"
    ),
    r"\bin vain\b": "without effect",
    r"\bvouch(?:es|ed)?\b": "assert",
    r"\bhanded on\b": "passed through",
    r"\bhouse (?:words?|of|rules?)\b|\bfloors? of the\b|\ba room\b|\bthe room\b|\brooms\b": (
        "package"
    ),
    r"\bof one's own\b|\bof its own making\b|\bof ours\b|\bof theirs\b": "our own, its own",
    r"\bwithout a word\b": "silently",
    r"\bfor ever\b": "forever",
    r"\bhears? of\b|\bheard of\b": "is notified of, knows",
    r"\blook(?:s|ed)? after\b|\bsees? to\b(?! it)": "manage, check",
}
HOUSE_WORDS = {re.compile(pattern, re.IGNORECASE): word for pattern, word in HOUSE_WORDS.items()}

# A method of files, and a field of the file format.
# A method of files, an event field, payload fields, an HTML element.
ALLOWED_NAMES = {"tell", "seam", "aside"}

SEPARATOR = " ¶ "
LONG_LINE = 2_000  # a picture in a notebook

# Parts of identifiers, separated by underscores or by capital letters.
HOUSE_NAMES = {
    "anew", "aside", "asked", "atlas", "beside", "besides", "crumbs", "hear", "heard", "hears",
    "nobody", "pennant", "pennants", "said", "seam", "seams", "somebody", "tell", "teller",
    "telling", "tells", "told", "whoever",
}  # fmt: skip

BRITISH = re.compile(
    r"colour|neighbour|behaviour|favour|honour(?!able)|(?<![a-z])licence|centre|(?<![a-z])grey"
    r"|artefact|catalogue|labelled|labelling|modelled|modelling|travelled|whilst|judgement"
    r"|(?:serial|synchron|initial|normal|recogn|organ|optim|summar|minim|maxim|visual|final"
    r"|special|categor|random|general|material|quant|token|vector|parallel|penal|local|custom"
    r"|emphas|memor|author|standard|util|stabil|real)is(?:e[drs]?\b|es\b|ing\b|ation)"
    r"|analys(?:e[drs]?\b(?! of)|ing\b)",
    re.IGNORECASE,
)


def rejected(path: Path) -> Iterator[str]:
    """Yield the passages of a file that are not plain technical English."""
    yield from _noun_clauses(path)
    yield from _house_words(path)
    yield from _house_names(path)
    yield from _british_spellings(path)


def _noun_clauses(path: Path) -> Iterator[str]:
    for text in prose.texts(path):
        first = text.words.lstrip().partition("\n")[0]
        if text.kind in NOUN_CLAUSE and NOUN_CLAUSE[text.kind].match(first):
            yield f"{text.line}: docstring begins {first[:60]!r}: use a noun or a verb"


def _house_words(path: Path) -> Iterator[str]:
    # Search all texts of a file at once: one search per text would take three times as long.
    starts, lines, words = [0], [], ""
    for text in prose.texts(path):
        words += " ".join(text.words.split()) + SEPARATOR
        starts.append(len(words))
        lines.append(text.line)
    for pattern, instead in HOUSE_WORDS.items():
        for found in pattern.finditer(words):
            line = lines[bisect_right(starts, found.start()) - 1]
            context = words[max(0, found.start() - 25) : found.end() + 25]
            yield f"{line}: {found.group()!r} in {context!r}: {instead}"


def _house_names(path: Path) -> Iterator[str]:
    for line, name in prose.identifiers(path):
        house = HOUSE_NAMES & {part.lower() for part in re.findall(r"[a-z]+|[A-Z][a-z]*", name)}
        if house and name not in ALLOWED_NAMES:
            yield f"{line}: identifier {name!r}: {' '.join(sorted(house))!r} is a house word"


def _british_spellings(path: Path) -> Iterator[str]:
    if path.parts[-3:-1] == ("history", "cases"):
        return  # they name variables of other projects
    source = path.read_text(encoding="utf-8")
    british = sorted(word for word in set(re.findall(r"[A-Za-z]+", source)) if BRITISH.search(word))
    for number, line in enumerate(source.splitlines() if british else (), 1):
        if len(line) < LONG_LINE:
            yield from (
                f"{number}: {word!r}: American spelling" for word in british if word in line
            )


# This file lists the words themselves.
CHECKED = [path for path in prose.files() if path.name != "test_language.py"]


@pytest.mark.parametrize("folder", sorted({path.parent for path in CHECKED}), ids=prose.name_of)
def test_texts_of_a_folder_are_plain_technical_english(folder):
    found = {path.name: list(rejected(path)) for path in CHECKED if path.parent == folder}
    assert {name: passages for name, passages in found.items() if passages} == {}


def main() -> None:
    """Print the number of rejected passages per file, or the passages of the named files."""
    for path in CHECKED:
        found = list(rejected(path))
        if sys.argv[1:] and any(name in prose.name_of(path) for name in sys.argv[1:]):
            for passage in found:
                sys.stdout.write(f"{prose.name_of(path)}:{passage}\n")
        elif found and not sys.argv[1:]:
            sys.stdout.write(f"{len(found):4d} {prose.name_of(path)}\n")


if __name__ == "__main__":
    main()
