"""The operators of torchvision that detection needs, where its wheel does not load.

The wheel of the package index is built for CUDA; with the CPU build of PyTorch its library lacks
symbols, and ``import torchvision`` fails. ``define()`` names the operators that the import
describes, and computes ``nms`` in Python. ``roi_align`` has a form in Python in torchvision itself.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch

NMS = "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
QNMS = "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_kept: list[torch.library.Library] = []


def define() -> None:
    """Define the operators if the library of torchvision does not load."""
    found = importlib.util.find_spec("torchvision")
    if found is None or not found.origin:
        return
    try:
        torch.ops.load_library(str(Path(found.origin).parent / "_C.so"))
    except OSError:
        library = torch.library.Library("torchvision", "DEF")
        for schema in (NMS, QNMS):
            library.define(schema)
        library.impl("nms", _nms, "CPU")
        _kept.append(library)
        import torchvision.ops.boxes

        torchvision.ops.boxes._assert_has_ops = lambda: None


def _nms(boxes, scores, threshold):
    from torchvision.ops import box_iou

    order, kept = scores.argsort(descending=True, stable=True), []
    overlaps = box_iou(boxes, boxes) > threshold
    while len(order):
        kept.append(order[0])
        order = order[~overlaps[order[0], order]][0 if overlaps[order[0], order[0]] else 1 :]
    return torch.stack(kept) if kept else order
