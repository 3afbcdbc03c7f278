"""Precision of floating-point dtypes."""

from __future__ import annotations

from typing import Final

SIGNIFICAND_BITS: Final = {
    "float64": 52, "complex128": 52, "float32": 23, "complex64": 23, "float16": 10, "bfloat16": 7,
}  # fmt: skip
"""The bits after the leading one of each dtype, by its name."""

EPSILON: Final = {dtype: 2.0**-bits for dtype, bits in SIGNIFICAND_BITS.items()}
"""The distance from 1 to the next number of each dtype."""

UNIT_ROUNDOFF: Final = {dtype: epsilon / 2 for dtype, epsilon in EPSILON.items()}
"""The largest relative error of rounding to each dtype."""
