"""What is wrong, and which line caused it."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.evidence.facts import Evidence
from autogradviz.diagnose.finding import Confidence, Finding
from autogradviz.diagnose.notebook_names import in_cells
from autogradviz.diagnose.rules.backward_read_modified import find_read_back
from autogradviz.diagnose.rules.checkpoint_mismatch import find_diverged
from autogradviz.diagnose.rules.checkpoint_repeated_effects import (
    find_captured_mutations,
    find_repeated_effects,
    find_unrestored_random,
)
from autogradviz.diagnose.rules.checkpoint_saves_misaligned import find_shifted_saves
from autogradviz.diagnose.rules.checkpoint_side_effects import find_python_effects
from autogradviz.diagnose.rules.checkpoint_value_mismatch import find_different_values
from autogradviz.diagnose.rules.ctx_attribute_written import find_written_attributes
from autogradviz.diagnose.rules.custom_recompute import find_handmade
from autogradviz.diagnose.rules.data_reassigned import find_other_memory
from autogradviz.diagnose.rules.early_stop_caught import find_swallowed
from autogradviz.diagnose.rules.gradient_double_counted import find_counted_twice
from autogradviz.diagnose.rules.gradient_magnitude import find_uneven_gradients
from autogradviz.diagnose.rules.gradient_missing import find_missing_gradients
from autogradviz.diagnose.rules.gradient_refused import find_refused_gradients
from autogradviz.diagnose.rules.graph_lost import find_lost_graph
from autogradviz.diagnose.rules.hook_buffer_reused import find_reused_buffers
from autogradviz.diagnose.rules.hooks_wrong_tensor import find_mixed_up
from autogradviz.diagnose.rules.inplace_refused import find_refused
from autogradviz.diagnose.rules.kept_alive_after_backward import find_kept_alive
from autogradviz.diagnose.rules.known_errors import find_misuse
from autogradviz.diagnose.rules.leaf_frozen import find_frozen
from autogradviz.diagnose.rules.not_finite import find_not_finite
from autogradviz.diagnose.rules.recomputed_save_overwritten import find_overwritten
from autogradviz.diagnose.rules.reentrant_no_grad_input import find_cut_off
from autogradviz.diagnose.rules.reentrant_pitfalls import find_reentrant_pitfalls
from autogradviz.diagnose.rules.saved_detached_or_freed import find_detached, find_freed
from autogradviz.diagnose.rules.saved_tensor_mutated import find_mutated
from autogradviz.diagnose.rules.selective_cache_mutated import find_mutated_cache
from autogradviz.diagnose.rules.shared_gradient_written import find_shared_gradient_writes
from autogradviz.diagnose.rules.silent_write import find_silent_writes
from autogradviz.diagnose.rules.sparse_parts_written import find_written_sparse
from autogradviz.diagnose.rules.write_hidden_by_hooks import find_hidden_writes
from autogradviz.diagnose.source import index as source
from autogradviz.errors import AutogradvizWarning
from autogradviz.gc_control import collector_paused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from autogradviz.analysis import Analysis, SourceLocation

__all__ = ["Confidence", "Finding", "diagnose"]

_FAMILIES: Final = (
    find_mutated,
    find_detached,
    find_freed,
    find_diverged,
    find_swallowed,
    find_misuse,
    find_refused_gradients,
    find_reentrant_pitfalls,
    find_mutated_cache,
    find_refused,
    find_lost_graph,
    find_cut_off,
    find_shifted_saves,
    find_shared_gradient_writes,
    find_captured_mutations,
    find_unrestored_random,
    find_repeated_effects,
    find_different_values,
    find_handmade,
    find_counted_twice,
    find_python_effects,
    find_written_attributes,
    find_hidden_writes,
    find_overwritten,
    find_reused_buffers,
    find_mixed_up,
    find_silent_writes,
    find_written_sparse,
    find_read_back,
    find_other_memory,
    find_not_finite,
    find_missing_gradients,
    find_frozen,
    find_uneven_gradients,
    find_kept_alive,
)
_RANK: Final = {"certain": 0, "likely": 1, "hint": 2}


@collector_paused()
def diagnose(analysis: Analysis) -> tuple[Finding, ...]:
    """Return what is wrong in a recording, the surest first."""
    source.forget()
    evidence = Evidence(analysis)
    found = [finding for family in _FAMILIES for finding in _asked(family, evidence)]
    if analysis.cells:
        found = [in_cells(finding, analysis.cells) for finding in found]
    return tuple(_drop_superseded(sorted(found, key=lambda finding: _RANK[finding.confidence])))


def _drop_superseded(found: list[Finding]) -> Iterator[Finding]:
    """Leave out what another finding says better.

    That an effect happened twice, where a surer finding names the same line for it; that a region
    gave other values, where one was written after it was saved.
    """
    told: set[tuple[int | None, SourceLocation | None]] = set()
    overwritten = {finding.region_id for finding in found if finding.slug == "hidden-write"}
    for finding in found:
        place = (finding.region_id, finding.culprit)
        echoes = finding.slug == "checkpoint-effect-repeated" and place in told
        follows = finding.slug == "checkpoint-different-values" and finding.region_id in overwritten
        if not echoes and not follows:
            yield finding
        told.add(place)


def _asked(family: Callable[[Evidence], Iterable[Finding]], evidence: Evidence) -> list[Finding]:
    """Return what one family finds; its own failure costs no other one's findings."""
    try:
        return list(family(evidence))
    except Exception as error:  # noqa: BLE001
        message = f"{family.__name__} failed: {type(error).__name__}: {error}"
        warnings.warn(message, AutogradvizWarning, stacklevel=2)
        return []
