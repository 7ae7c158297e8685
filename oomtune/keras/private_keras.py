"""Keras' private names that oomtune needs, and the state that Keras keeps while layers run.

No other module imports from `keras.src`. `tests/unit/keras/test_private_names.py` checks each name, so a release that
drops one fails there and says which.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from keras.src.backend import compute_output_spec
from keras.src.backend.common import global_state
from keras.src.layers.layer import CallContext
from keras.src.models.functional import Functional, operation_fn
from keras.src.saving import saving_lib

__all__ = [
    "CallState",
    "Functional",
    "compute_output_spec",
    "is_stateless",
    "mask_of",
    "operation_fn",
    "saving_lib",
    "set_mask",
    "stored_value",
    "training_mode",
]

_AUTOCAST = "autocast_scope"
_CALL = "current_call_ctx"
_STATELESS = "stateless_scope"
_TRAINING = "training"


def is_stateless() -> bool:
    """Return whether Keras runs a layer only for its shapes, or inside a part that is already being recomputed."""
    return global_state.get_global_attribute(_STATELESS) is not None


def training_mode(arguments: dict[str, Any]) -> Any:
    """Return the `training` value that a layer called with these arguments uses: its own, or an outer layer's."""
    training = arguments.get(_TRAINING)
    if training is None:
        context = global_state.get_global_attribute(_CALL)
        training = None if context is None else context.get_value(_TRAINING)
    return training if training is None or isinstance(training, bool | int) else "a tensor"


@dataclass(frozen=True, slots=True)
class CallState:
    """The precision that variables are read in, and what an outer layer passes on to inner ones, such as `training`."""

    autocast: Any
    context: Any

    @classmethod
    def current(cls) -> CallState:
        """Capture the state of the call that is running."""
        # Layers write to their context, so keep a copy.
        return cls(global_state.get_global_attribute(_AUTOCAST), copy.copy(global_state.get_global_attribute(_CALL)))

    @classmethod
    def inside_model(cls, *, training: bool) -> CallState:
        """Create the state that layers see inside a model that trains, or that does not."""
        context = CallContext(entry_layer=None)
        context.set_value(_TRAINING, training)
        return cls(None, context)

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """Run a block under this state, then put back the state from before."""
        autocast, context = (global_state.get_global_attribute(name) for name in (_AUTOCAST, _CALL))
        global_state.set_global_attribute(_AUTOCAST, self.autocast)
        global_state.set_global_attribute(_CALL, copy.copy(self.context))
        try:
            yield
        finally:
            global_state.set_global_attribute(_AUTOCAST, autocast)
            global_state.set_global_attribute(_CALL, context)


def mask_of(tensor: Any) -> Any:
    """Return the mask that Keras attached to a tensor, or None."""
    return getattr(tensor, "_keras_mask", None)


def set_mask(tensor: tf.Tensor, mask: Any) -> None:
    """Attach a mask to a tensor the way Keras does."""
    if mask is not None:
        tensor._keras_mask = mask


def stored_value(variable: Any) -> tf.Tensor:
    """Read a Keras variable in the precision that it is stored in, ignoring autocasting."""
    return tf.convert_to_tensor(variable._value)
