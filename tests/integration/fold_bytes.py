"""Bytes of the fold, compared with the recording."""

from __future__ import annotations

import math

from autogradviz.event_log.step_totals import _saved_bytes
from autogradviz.scene.saved_memory_fold import SCALE


def differences(trace):
    """Return in words where ribbons, waists or the bytes held differ from the recording."""
    return list(_differences(trace))


def _differences(trace):
    scene, analysis, sizes = trace._viewer_scene, trace.analysis, trace.saved_bytes()
    storages, ribbons, folds = scene.counted_storages, scene.ribbons, scene.folds
    if not all(fold.drawn for fold in folds):
        yield "not all folds are drawn"
    members = sorted(at for ribbon in ribbons for at in ribbon.members)
    if members != list(range(len(storages))):
        yield f"members of ribbons: {members}"
    for elsewhere, what in ((False, sizes.saved + sizes.recomputed), (True, sizes.offloaded)):
        drawn = sum(each.nbytes for each in ribbons if each.elsewhere == elsewhere)
        if drawn != what:
            yield f"ribbons have {drawn} bytes, the recording {what} (elsewhere: {elsewhere})"
    for fold in folds:
        own = [each for each in ribbons if each.fold == fold.index]
        yield from _waist(fold, own)
    now = sum(fold.held_nbytes for fold in folds)
    if now != sizes.held:
        yield f"folds hold {now} bytes at the end, the recording {sizes.held}"
    yield from _curves(analysis, [storages[at] for each in ribbons for at in each.members])


def _waist(fold, ribbons):
    """Yield whether the waists of a fold are side by side, as wide as their bytes."""
    nbytes = sum(each.nbytes for each in ribbons)
    if nbytes != fold.nbytes:
        yield f"fold {fold.index} has {fold.nbytes} bytes, its ribbons {nbytes}"
    at = 0
    for each in ribbons:
        low, high = (SCALE * size / (nbytes or 1) for size in (at, at + each.nbytes))
        if max(abs(each.waist[0] - low), abs(each.waist[1] - high)) > 1:
            yield f"fold {fold.index}: a waist is {each.waist}, its bytes {low} to {high}"
        at += each.nbytes


def _curves(analysis, storages):
    """Yield the events after which what the ribbons hold is not what the recording holds."""
    memory = analysis.memory
    changes = {}  # by time
    for each in storages:
        for start, end in zip(each.holds[::2], each.holds[1::2], strict=True):
            for time_ns, by in ((start, each.nbytes), (end, -each.nbytes)):
                if time_ns >= 0:
                    changes[time_ns] = changes.get(time_ns, 0) + by
    recorded = dict(zip(memory.times_ns, memory.nbytes, strict=True))  # the last of each time
    now = 0
    for time_ns in sorted({*changes, *recorded}):
        now += changes.get(time_ns, 0)
        if now != recorded.get(time_ns, math.nan):
            yield f"after {time_ns} ns ribbons hold {now}, the recording {recorded.get(time_ns)}"
    totals = dict(_saved_bytes(analysis.log))
    if totals != dict(zip(memory.seqs, memory.nbytes, strict=True)):
        yield "the totals of steps have another curve"
