"""Applying a tuned config inside a training script.

    import oomtune, oomtune.keras

    tuned = oomtune.load_tuned("model.tuned.yaml")
    oomtune.keras.setup(tuned)                                 # before any TensorFlow op
    model = build_model(tuned.sequence_length)
    model.compile(**oomtune.keras.compile_args(tuned))
    oomtune.keras.rematerialise(model, tuned)                  # does nothing where the answer does without
    model.fit(oomtune.keras.batch(train, tuned), validation_data=oomtune.keras.batch(valid, tuned))

TensorFlow is imported inside the functions, so that `setup` can still say how it starts.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from oomtune.errors import EnvironmentProblem, UsageProblem
from oomtune.keras.accumulation import accumulating
from oomtune.keras.device import use_card
from oomtune.keras.structures import each
from oomtune.storage.tuned import TunedConfig
from oomtune.units import MIB

if TYPE_CHECKING:
    import keras
    import tensorflow as tf


def setup(tuned: TunedConfig, *, limit_memory: bool = True) -> None:
    """Set the precision policy and the memory limit that the answer was confirmed under.

    Call it before the first TensorFlow op. With `limit_memory=False` no limit is set, and TensorFlow takes what memory
    it can.
    """
    for name, value in tuned.environment.items():
        os.environ.setdefault(name, value)
    if tuned.allocator != "default":
        os.environ["TF_GPU_ALLOCATOR"] = tuned.allocator  # read when TensorFlow first uses the card
    if limit_memory:
        _limit_memory(tuned)
    set_policy(tuned)


def set_policy(tuned: TunedConfig) -> None:
    """Make the tuned precision Keras' global policy."""
    import keras

    keras.config.set_dtype_policy(tuned.precision)


def _limit_memory(tuned: TunedConfig) -> None:
    """The limit goes to the device that trains: also when a CPU stood in for the card that is here now."""
    limit_mib = tuned.memory_limit_bytes // MIB
    if tuned.device_kind == "gpu" or tuned.stands_in_for is not None:
        import tensorflow as tf

        cards = tf.config.list_physical_devices("GPU")
        if cards:
            use_card(cards[0], None if tuned.memory_growth else limit_mib, tf.config)
            return
        if tuned.device_kind == "gpu":
            raise EnvironmentProblem(
                "this config was tuned on a GPU, and TensorFlow sees none here", hint="setup(tuned, limit_memory=False)"
            )
    # Read by TensorFlow when the process first allocates.
    os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "1"
    os.environ["TF_CPU_BFC_MEM_LIMIT_IN_MB"] = str(limit_mib)


def batch(dataset: tf.data.Dataset, tuned: TunedConfig, *, drop_remainder: bool = False) -> tf.data.Dataset:
    """The dataset of single samples in batches of the tuned size, one batch ahead as in the trials."""
    return dataset.batch(tuned.batch_size, drop_remainder=drop_remainder).prefetch(1)


def bucketed(
    dataset: tf.data.Dataset, tuned: TunedConfig, *, length: Callable[..., Any] | None = None
) -> tf.data.Dataset:
    """The dataset of single samples in the tuned buckets, by `tf.data`'s own bucketing: each sample goes into a batch
    with others about as long, and is padded to the end of its bucket. What is longer than the last bucket is cut.

    A sample's length is the first dimension of its longest part that varies, or without trailing zeros where all tokens
    come padded; `length`, given the sample's parts, may say otherwise. The model has to take samples of any length.
    """
    if not tuned.bucket_boundaries:
        raise UsageProblem(
            "this config has no buckets", hint="they are found where the dataset of the spec varies in length"
        )
    from oomtune.keras.bucketing import in_buckets

    return in_buckets(dataset, tuned.bucket_boundaries, tuned.bucket_batch_sizes, length)


def rematerialise(model: keras.Model, tuned: TunedConfig) -> list[str]:
    """Have the model compute again, in the backward pass, what it did in the trials; the names of those parts.

    It stays the same model, compiled or not, with the same weights and the same way to be saved. The list is filled
    when the model first trains.
    """
    from oomtune.keras import remat

    return remat.rematerialise(model, tuned.remat).names


def optimizer(tuned: TunedConfig) -> keras.Optimizer:
    """The spec's optimizer, accumulating gradients when the effective batch size asks for it."""
    import keras

    chosen = keras.optimizers.get(tuned.training.get("optimizer") or "adam")
    return accumulating(chosen, tuned.gradient_accumulation_steps)


def compile_args(tuned: TunedConfig) -> dict[str, Any]:
    """The arguments for `Model.compile` that the trials used. A model that comes compiled is not compiled again."""
    training = tuned.training
    if training.get("loss") is None:
        raise UsageProblem(
            "this config has no training.loss: the trials took the model as it comes compiled, with its own optimizer",
            hint="leave model.compile out, or set training.loss in the spec and probe again",
        )
    import keras

    return {
        "optimizer": optimizer(tuned),
        "loss": each(keras.losses.get, training["loss"]),
        "loss_weights": training.get("loss_weights"),
        "metrics": each(keras.metrics.get, training.get("metrics")) or None,
        "jit_compile": training.get("jit_compile", "auto"),
        "run_eagerly": training.get("run_eagerly", False),
    }
