"""Arguments for `Model.compile`: losses, metrics, and optimizers that accumulate gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from oomtune.errors import UsageProblem
from oomtune.storage.tuned import TunedConfig

if TYPE_CHECKING:
    import keras


def compile_args(tuned: TunedConfig) -> dict[str, Any]:
    """Return the `Model.compile` arguments that the trials used.

    Raises `UsageProblem` if the trials trained a model that was already compiled.
    """
    training = tuned.training
    if training.get("loss") is None:
        raise UsageProblem(
            "this config has no training.loss: the trials used the model as it was compiled, with its own optimizer",
            hint="leave model.compile out, or set training.loss in the spec and probe again",
        )
    import keras

    return {
        "optimizer": optimizer(tuned),
        "loss": deserialise(keras.losses.get, training["loss"]),
        "loss_weights": training.get("loss_weights"),
        "metrics": deserialise(keras.metrics.get, training.get("metrics")) or None,
        "jit_compile": training.get("jit_compile", "auto"),
        "run_eagerly": training.get("run_eagerly", False),
    }


def optimizer(tuned: TunedConfig) -> keras.Optimizer:
    """Create the spec's optimizer, with gradient accumulation if the effective batch size needs it."""
    import keras

    plain = keras.optimizers.get(tuned.training.get("optimizer") or "adam")
    return accumulate_gradients(plain, tuned.gradient_accumulation_steps)


def accumulate_gradients(optimizer: Any, steps: int) -> Any:
    """Return a copy of a Keras optimizer that applies the mean gradient of every `steps` batches."""
    if steps < 2:
        return optimizer
    if hasattr(optimizer, "inner_optimizer"):
        raise UsageProblem(
            f"{type(optimizer).__name__} can't accumulate gradients over {steps} batches",
            hint="name the optimizer inside it: Keras adds loss scaling by itself under mixed_float16",
        )
    return type(optimizer).from_config(optimizer.get_config() | {"gradient_accumulation_steps": steps})


def deserialise(get: Callable[[Any], Any], config: Any) -> Any:
    """Replace each class config in a nested structure of losses or metrics by `get(config)`.

    Plain names stay strings, because Keras derives some choices (such as the kind of accuracy) from them.
    """
    if isinstance(config, dict):
        if "class_name" in config:
            return get(config)
        return {name: deserialise(get, entry) for name, entry in config.items()}
    return [deserialise(get, entry) for entry in config] if isinstance(config, list) else config
