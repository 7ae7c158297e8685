"""Gradients that add up over several batches, as a trial and a training script both have them."""

from __future__ import annotations

from typing import Any

from oomtune.errors import UsageProblem


def accumulating(optimizer: Any, steps: int) -> Any:
    """The same optimizer, a Keras one, but it adds gradients up and applies their mean in each of so many steps."""
    if steps < 2:
        return optimizer
    if hasattr(optimizer, "inner_optimizer"):
        raise UsageProblem(
            f"{type(optimizer).__name__} can't add gradients up over {steps} batches",
            hint="name the optimizer that is inside it: under mixed_float16 Keras scales the loss by itself",
        )
    return type(optimizer).from_config(optimizer.get_config() | {"gradient_accumulation_steps": steps})
