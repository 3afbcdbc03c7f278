"""Stable codes of findings, "AGV101", for baselines, code scanning and searches.

A code never changes and is never used again: the position in a list is the number, so a new slug
goes to the end of its list, and that of a finding that no longer exists stays.
"""

from __future__ import annotations

from functools import cache
from typing import Final

_SLUGS: Final[dict[int, tuple[str, ...]]] = {
    100: (  # saved tensors and writes
        "saved-tensor-mutated", "saved-tensor-detached", "saved-memory-freed", "silent-write",
        "hidden-write", "mutation-context-left", "hook-memory-reused", "hooks-mix-up",
        "written-in-place", "shared-gradient-written", "inplace-refused", "inference-tensor",
    ),
    200: (  # checkpoint
        "checkpoint-argument-mutated", "checkpoint-captured-tensor-mutated",
        "checkpoint-context-missing", "checkpoint-different-metadata",
        "checkpoint-different-number", "checkpoint-different-values",
        "checkpoint-early-stop-caught", "checkpoint-effect-repeated", "checkpoint-more-saved",
        "checkpoint-not-repeatable", "checkpoint-random-not-restored", "checkpoint-random-state",
        "checkpoint-saves-shifted", "checkpoint-state-changed", "exec-group-overlap",
        "fsdp-recompute-dtype", "fsdp-recompute-regathers", "handmade-checkpoint-differs",
        "reentrant-captured-graph", "reentrant-detached-output", "reentrant-hook-repeated",
        "reentrant-needs-backward", "reentrant-nested-results", "reentrant-no-grad-input",
        "reentrant-side-channel", "saved-tensors-read-twice", "selective-backward-twice",
        "selective-cache-mutated", "selective-policy-never-met",
    ),
    300: (  # torch.compile
        "compiled-budget-ignored", "compiled-buffers-donated", "compiled-checkpoint-eager",
        "compiled-double-backward", "compiled-hook-ignored", "compiled-hooks-not-inlined",
        "compiled-op-failed", "compiled-output-bypassed", "compiled-policy-ignored",
        "compiled-recompute-at-once", "compiled-recompute-differs",
        "compiled-region-backward-twice", "compiled-saved-value-written",
        "compiled-value-expensive", "recompile-storm",
    ),
    400: (  # gradients
        "graph-lost", "graph-freed", "gradient-changed", "gradient-counted-twice", "gradient-cut",
        "gradient-exploding", "gradient-missing", "gradient-not-derivative",
        "gradient-of-non-leaf", "gradient-refused", "gradient-vanishing", "gradient-zero",
        "gradients-discarded", "gradients-mixed", "gradients-not-cleared", "leaf-frozen-early",
        "leaf-never-thawed", "loss-term-constant", "not-finite", "operation-refused",
        "partial-value-used", "precision-lost", "loss-broadcast", "result-constant",
        "result-discarded", "gradient-all-zero", "loss-of-probabilities", "loss-not-scalar",
        "noise-broadcast", "loss-target-trained", "view-mixes-axes",
    ),
    500: (  # optimizers
        "clip-after-step", "clip-before-unscale", "clip-without-gradients",
        "parameter-not-updated", "scaler-without-scale", "step-without-gradients",
        "tensor-not-registered", "accumulation-uneven", "accumulation-divisor",
        "clip-while-accumulating", "gradient-scaled-twice", "loss-scale-remains",
        "clip-other-parameters", "weights-untied",
    ),
    600: (  # custom Functions and hooks
        "context-keeps-tensor", "ctx-attribute-written", "function-input-written",
        "hooks-pile-up", "incoming-gradient-ignored",
    ),
    700: (  # memory
        "graph-kept", "tensors-kept", "out-of-memory", "graph-unused",
    ),
    800: (  # runs of several ranks
        "collective-mismatch", "collective-missing", "ddp-unused-parameter",
        "pipeline-stages-uneven", "rank-diverged", "rank-not-finite-first", "rank-slow",
        "recompute-diverged-on-rank", "replicas-drifted", "gradient-times-mesh-size",
        "replicated-gradient-differs", "replicated-value-differs",
    ),
    900: (  # accelerators
        "device-waited", "stream-not-waited", "gradient-on-other-stream",
    ),
}  # fmt: skip

UNKNOWN: Final = "AGV000"
"""The code of the findings of plug-ins, which have only their slug."""


@cache
def codes() -> dict[str, str]:
    """Return the code of each slug."""
    return {
        slug: f"AGV{first + place}"
        for first, slugs in _SLUGS.items()
        for place, slug in enumerate(slugs, 1)
    }


def code_of(slug: str) -> str:
    """Return the code of a finding: "AGV101"."""
    return codes().get(slug, UNKNOWN)


def slug_of(code: str) -> str:
    """Return the slug of a code, in any case; other text is returned as it is."""
    found = (slug for slug, each in codes().items() if each == code.upper())
    return next(found, code)
