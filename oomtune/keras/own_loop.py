"""`oomtune.step()`, for a training script that has a loop of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_listeners: list[Callable[[Any], None]] = []


def step(loss: Any = None) -> None:
    """Say that a training step has ended; call it once a step. Outside a probe it does nothing.

    Given the step's loss, the probe also sees whether that is still a number.
    """
    for listener in _listeners:
        listener(loss)


def listen(listener: Callable[[Any], None]) -> None:
    """Have `listener` told of every step from now on."""
    _listeners.append(listener)
