"""Was it fragmentation? Memory that is free, and in pieces too small to give.

A request larger than all that is free is simply too large, however much that is. It is fragmentation when there was
room for it in sum and no piece to hold it. A trial on the CPU is ended before the allocator says what was asked for:
then the largest tensor that is held stands for what was. Where pieces are free that are larger than any tensor, or next
to nothing is held, what was asked for was something larger than all that is known, and nothing is claimed.
"""

from __future__ import annotations

from oomtune.domain import FRAGMENTATION, AllocatorState, TrialError
from oomtune.units import format_bytes

_FREE_SHARE = 0.15
_HELD_SHARE = 0.1


def is_fragmented(state: AllocatorState) -> bool:
    asked = state.largest_held_bytes if state.requested_bytes is None else state.requested_bytes
    much_free = state.free_bytes > _FREE_SHARE * state.limit_bytes
    much_held = state.in_use_bytes > _HELD_SHARE * state.limit_bytes
    return much_free and much_held and state.largest_free_bytes < asked <= state.free_bytes


def error_of(state: AllocatorState) -> TrialError:
    """What to say of it, with the allocator's own figures."""
    limit, free = format_bytes(state.limit_bytes), state.free_bytes / state.limit_bytes
    largest = format_bytes(state.largest_free_bytes)
    if state.requested_bytes is None:
        asked = f"the model has tensors of {format_bytes(state.largest_held_bytes)}"
    else:
        asked = f"{format_bytes(state.requested_bytes)} was asked for"
    return TrialError(
        code=FRAGMENTATION,
        message=f"fragmentation: {free:.0%} of the limit of {limit} is free, in pieces of at most {largest}, and "
        f"{asked} ({state.allocator}, {format_bytes(state.in_use_bytes)} in use, fragmentation "
        f"{state.fragmentation:.2f})",
        hint=_hint(state),
    )


def _hint(state: AllocatorState) -> str:
    if "cpu" in state.allocator:
        return "take a smaller batch; on a card, device.allocator: cuda_malloc_async is made against this"
    return "set device.allocator: cuda_malloc_async, which is made against this, and probe again"
