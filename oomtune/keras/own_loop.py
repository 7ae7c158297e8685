"""`oomtune.step()`, for training scripts with their own loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_listeners: list[Callable[[Any], None]] = []


def step(loss: Any = None) -> None:
    """Mark the end of a training step. Call it once per step; outside a probe it does nothing.

    Pass the step's loss to let the probe check that it stays finite.
    """
    for listener in _listeners:
        listener(loss)


def listen(listener: Callable[[Any], None]) -> None:
    """Call `listener` at the end of every step from now on."""
    _listeners.append(listener)
