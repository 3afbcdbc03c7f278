"""What recording costs: ratios of CPU time, one thread, in one run. ``make bench`` prints them."""

from __future__ import annotations

import gc
import statistics
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import autogradviz
from autogradviz.demo.gpt import GPT, Config

if TYPE_CHECKING:
    from collections.abc import Callable

TABLE = Path(__file__).parent.parent / "assets" / "bench.md"
ROUNDS = {64: 9, 768: 3}  # by width: a wide step takes a second


class EmptyMode(TorchDispatchMode):
    """The floor: a dispatch mode that does nothing."""

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


WAYS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "plain": nullcontext,
    "empty dispatch mode": EmptyMode,
    "record()": autogradviz.record,
    "record(ops=False)": lambda: autogradviz.record(ops=False),
    "record(stacks=False)": lambda: autogradviz.record(stacks=False),
    "record(values=True)": lambda: autogradviz.record(values=True),
}


def measure(width: int) -> dict[str, list[float]]:
    """Return CPU seconds of one training step, by way, round by round."""
    torch.manual_seed(0)
    config = Config(layers=12, width=width, heads=4, context=64)
    model = GPT(config)
    characters = torch.randint(0, 128, (2, 64))

    def step() -> None:
        model.zero_grad()
        model(characters, characters).backward()

    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    for number in range(ROUNDS[width] + 1):
        for name, way in WAYS.items():
            gc.collect()
            started = time.process_time()
            with way():
                step()
            if number:  # the first round warms up
                seconds[name].append(time.process_time() - started)
    return seconds


def main() -> None:
    torch.set_num_threads(1)
    columns = {width: measure(width) for width in ROUNDS}
    head = [f"12-layer GPT, d={width}, checkpointed" for width in columns]
    rows = [f"| | {' | '.join(head)} |", f"|---|{'---|' * len(head)}"]
    for name in WAYS:
        cells = []
        for seconds in columns.values():
            plain = statistics.median(seconds["plain"])
            own = statistics.median(seconds[name])
            noise = (max(seconds[name]) - min(seconds[name])) / plain / 2
            text = f"{own * 1e3:.0f} ms" if name == "plain" else f"{own / plain:.2f}×"
            cells.append(f"{text} ± {noise:.2f}")
        rows.append(f"| {name} | {' | '.join(cells)} |")
    table = "\n".join(rows) + "\n"
    TABLE.write_text(table, encoding="utf-8")
    sys.stdout.write(table)


if __name__ == "__main__":
    main()
