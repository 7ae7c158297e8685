"""Telling TensorFlow which card to train on and how much of it, as a trial and a training script both do."""

from __future__ import annotations

from typing import Any


def use_card(card: Any, limit_mib: int | None, config: Any) -> None:
    """Train on this card alone; `config` is `tf.config`.

    TensorFlow takes either a limit or, where that is None, memory that grows: then nothing holds it to a limit, and all
    cards that it sees would have to grow.
    """
    config.set_visible_devices(card, "GPU")
    if limit_mib is None:
        config.experimental.set_memory_growth(card, True)
    else:
        config.set_logical_device_configuration(card, [config.LogicalDeviceConfiguration(memory_limit=limit_mib)])
