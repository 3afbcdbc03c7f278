"""Comparison of the output of an example with the one that a page shows.

What varies between machines and runs is not compared digit by digit:

- Durations are equal.
- Fingerprints of tensor contents depend on the last bits of a result, which depend on the
  processor. They are numbered by first occurrence: equal ones must be equal, others different.
- The memory of the machine, and what other examples hold of it, are equal.
- Decimal numbers are equal if they differ by less than a hundredth, as results in bfloat16 do.
"""

from __future__ import annotations

import doctest
import math
import re

MEMORY = re.compile(r"which has \S+ \wB in all|^In use were .*$", re.MULTILINE)
DURATION = re.compile(r"\b[\d.,]+ (?:µs|ms|s)\b")
FINGERPRINT = re.compile(r"\b[0-9a-f]{16}\b")
DECIMAL = re.compile(r"(?<![\w.])-?\d+\.\d+(?:e[+-]?\d+)?(?![\w.])")
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def is_same_output(expected: str, output: str) -> bool:
    """Return whether an output is the expected one, in which ``...`` stands for any text."""
    expected, output = map(_without_variable_parts, (expected, output))
    return doctest.OutputChecker().check_output(expected, _with_numbers_of(expected, output), FLAGS)


def _without_variable_parts(text: str) -> str:
    numbers: dict[str, int] = {}
    text = MEMORY.sub("memory", DURATION.sub("0 s", text))
    return FINGERPRINT.sub(lambda found: f"#{numbers.setdefault(found[0], len(numbers))}", text)


def _with_numbers_of(expected: str, output: str) -> str:
    """Return an output with the decimal numbers of another one, where they are nearly equal."""
    numbers = DECIMAL.findall(expected)
    if len(numbers) != len(DECIMAL.findall(output)):
        return output
    following = iter(numbers)

    def replaced(found: re.Match[str]) -> str:
        number = next(following)
        return number if math.isclose(float(number), float(found[0]), rel_tol=1e-2) else found[0]

    return DECIMAL.sub(replaced, output)
