"""Set the precision policy and the device memory limit, in trials and in training scripts."""

from __future__ import annotations

import os
from typing import Any

from oomtune.errors import EnvironmentProblem
from oomtune.storage.tuned import TunedConfig
from oomtune.units import MIB


def setup(tuned: TunedConfig, *, limit_memory: bool = True) -> None:
    """Set the precision policy and the memory limit of the trial that confirmed the answer.

    Call it before the first TensorFlow op. With `limit_memory=False`, TensorFlow takes as much memory as it can get.
    """
    for name, value in tuned.environment.items():
        os.environ.setdefault(name, value)
    if tuned.allocator != "default":
        os.environ["TF_GPU_ALLOCATOR"] = tuned.allocator  # TensorFlow reads it when it first uses the card
    if limit_memory:
        _limit_memory(tuned)
    set_policy(tuned)


def set_policy(tuned: TunedConfig) -> None:
    """Make the tuned precision Keras' global policy."""
    import keras

    keras.config.set_dtype_policy(tuned.precision)


def _limit_memory(tuned: TunedConfig) -> None:
    """Limit the memory of the device that trains. If a CPU stood in for a card, limit the card of this machine."""
    limit_mib = tuned.memory_limit_bytes // MIB
    if tuned.device_kind == "gpu" or tuned.stands_in_for is not None:
        import tensorflow as tf

        cards = tf.config.list_physical_devices("GPU")
        if cards:
            use_card(cards[0], None if tuned.memory_growth else limit_mib, tf.config)
            return
        if tuned.device_kind == "gpu":
            raise EnvironmentProblem(
                "this config was tuned on a GPU, but TensorFlow finds none on this machine",
                hint="setup(tuned, limit_memory=False)",
            )
    # TensorFlow reads these when the process first allocates.
    os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "1"
    os.environ["TF_CPU_BFC_MEM_LIMIT_IN_MB"] = str(limit_mib)


def use_card(card: Any, limit_mib: int | None, config: Any) -> None:
    """Restrict TensorFlow to one card; `config` is `tf.config`.

    TensorFlow supports either a limit or growing memory (`limit_mib` of None), not both. Growing memory has no limit,
    and TensorFlow requires all visible cards to agree on it, so the other cards are hidden.
    """
    config.set_visible_devices(card, "GPU")
    if limit_mib is None:
        config.experimental.set_memory_growth(card, True)
    else:
        config.set_logical_device_configuration(card, [config.LogicalDeviceConfiguration(memory_limit=limit_mib)])
