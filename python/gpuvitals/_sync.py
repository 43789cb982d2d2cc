"""Waiting for work that was queued on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Union

#: `"torch"`, `"cupy"`, or a function that returns when the queued work is done.
Sync = Union[str, Callable[[], object]]


def synchroniser(sync: Sync) -> Callable[[], object]:
    """The function that waits. It imports what it needs here, once, not at each mark."""
    if callable(sync):
        return sync
    if sync == "torch":
        return _torch()
    if sync == "cupy":
        import cupy

        return lambda: cupy.cuda.Device().synchronize()
    raise ValueError(f'sync is {sync!r}; it is "torch", "cupy" or a function that waits')


def _torch() -> Callable[[], object]:
    import torch

    # ROCm's GPUs are torch.cuda's, too.
    for kind in ("cuda", "xpu"):
        backend = getattr(torch, kind, None)
        if backend is not None and backend.is_available():
            return backend.synchronize  # type: ignore[no-any-return]
    # On the CPU nothing is queued.
    return lambda: None
