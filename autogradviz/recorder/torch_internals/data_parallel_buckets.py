"""The buckets in which ``DistributedDataParallel`` reduces gradients."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeGuard

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel


def is_data_parallel(module: Any) -> TypeGuard[DistributedDataParallel]:
    """Return whether a module is a ``DistributedDataParallel``."""
    loaded = sys.modules.get("torch.nn.parallel.distributed")
    return loaded is not None and isinstance(module, loaded.DistributedDataParallel)


def bucket_cap_nbytes(wrapper: DistributedDataParallel) -> int:
    """Return the bytes from which on a bucket is full."""
    return int(_statistics(wrapper).ints_map.get("bucket_cap_bytes", 0))


def rebuilt_buckets(wrapper: DistributedDataParallel) -> tuple[tuple[int, tuple[str, ...]], ...]:
    """Return bytes and parameter names of each bucket.

    Returns () before they are arranged anew, and if parameters were frozen since the wrapper was
    created, so that their numbers are unknown.
    """
    texts = _statistics(wrapper).strs_map
    sizes = texts.get("rebuilt_bucket_sizes", "")
    indices = texts.get("rebuilt_per_bucket_param_indices", "")
    if not sizes or not indices:
        return ()
    ignored = set(wrapper.parameters_to_ignore)
    # Numbered in the order in which the reducer got them: each tensor once, by its first name.
    named = [
        (f"module.{name}", parameter)
        for name, parameter in wrapper.module.named_parameters()
        if parameter.requires_grad and name not in ignored
    ]
    found = [
        (int(nbytes), [named[int(index)] for index in bucket.split() if int(index) < len(named)])
        for nbytes, bucket in zip(sizes.split(","), indices.split(","), strict=True)
    ]
    if any(nbytes != sum(p.nbytes for _, p in bucket) for nbytes, bucket in found):
        return ()
    return tuple((nbytes, tuple(name for name, _ in bucket)) for nbytes, bucket in found)


def _statistics(wrapper: DistributedDataParallel) -> Any:
    """Return what PyTorch collects for its own logs; reading it changes nothing."""
    return wrapper.logger._get_ddp_logging_data()  # type: ignore[union-attr]
