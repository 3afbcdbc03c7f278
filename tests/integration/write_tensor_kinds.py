"""Write docs/kinds-of-tensors.md from the cells of ``test_kinds_of_tensors.py``.

python tests/integration/write_tensor_kinds.py
"""

from __future__ import annotations

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "kinds-of-tensors.md"
HEAD = """# Kinds of tensors

A recording gives the same results with every kind of tensor. Some kinds have no entries that can be
read, or no memory that can be followed; a recording then says so, once for each kind, in the notes
of `print(trace)`. This table lists what it says of a small step with each kind.
`tests/integration/write_tensor_kinds.py` writes it, and
`tests/integration/test_kinds_of_tensors.py` runs all of it.

Under the Python engine, which `verify`, `annotate_memory` and `break_on` need, a dispatch mode is
active. PyTorch's engine then adds gradients out of place, so that the version counter of such a
gradient is smaller than without a recording; see
[Observing without changing](observing-without-changing.md).

| kind | what is not recorded | options |
|---|---|---|
"""
_RELATION = re.compile(r"^[a-z-]+: ")
"""The relation of ``check`` before its sentence."""


def page(found):
    """Return the page; ``found`` has sentences by kind and option."""
    rows = []
    for kind, cells in found.items():
        options = {}
        for option, sentences in cells.items():
            for sentence in sentences:
                text = _RELATION.sub("", sentence, count=1) if option == "check" else sentence
                names = options.setdefault(text, [])
                if option not in names:
                    names.append(option)
        if not options:
            rows.append(f"| `{kind}` | | all work |\n")
        for sentence, names in options.items():
            text = _short(sentence)
            rows.append(f"| `{kind}` | {text} | {', '.join(names)} |\n")
    return HEAD + "".join(rows)


def _short(sentence):
    text = " ".join(sentence.replace("|", "/").split()).replace(str(PAGE.parents[1]) + "/", "")
    return text if len(text) <= 200 else f"{text[:199]}…"


if __name__ == "__main__":
    sys.path[:0] = [str(PAGE.parents[1] / "tests"), str(Path(__file__).parent)]
    import tensor_kinds
    from run_tensor_kind import OPTIONS
    from test_kinds_of_tensors import cells

    kinds = list(tensor_kinds.KINDS)
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda kind: cells(kind, OPTIONS), kinds)
        PAGE.write_text(page(dict(zip(kinds, found, strict=True))))
