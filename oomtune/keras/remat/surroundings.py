"""What Keras keeps beside its layers while they run. What we know of its insides about running is in this file."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from keras.src.backend.common import global_state
from keras.src.layers.layer import CallContext

_AUTOCAST = "autocast_scope"
_CALL = "current_call_ctx"
_STATELESS = "stateless_scope"
_TRAINING = "training"


def stateless() -> bool:
    """Is a layer being run only to learn its shapes, or already as a part that is computed again?"""
    return global_state.get_global_attribute(_STATELESS) is not None


def training_mode(arguments: dict[str, Any]) -> Any:
    """What a layer that is called with these arguments takes `training` to be: it, or an outer layer, was told."""
    told = arguments.get(_TRAINING)
    if told is None:
        context = global_state.get_global_attribute(_CALL)
        told = None if context is None else context.get_value(_TRAINING)
    return told if told is None or isinstance(told, bool | int) else "a tensor"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The precision that variables are read in, and what an outer layer told the inner ones, such as `training`."""

    autocast: Any
    call: Any

    @classmethod
    def here(cls) -> Surroundings:
        # Layers write to the context that they are called in.
        return cls(global_state.get_global_attribute(_AUTOCAST), copy.copy(global_state.get_global_attribute(_CALL)))

    @classmethod
    def told(cls, *, training: bool) -> Surroundings:
        """As inside a model that is being trained, or is not."""
        context = CallContext(entry_layer=None)
        context.set_value(_TRAINING, training)
        return cls(None, context)

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        """Run as if still here; afterwards all is as it was."""
        autocast, call = (global_state.get_global_attribute(name) for name in (_AUTOCAST, _CALL))
        global_state.set_global_attribute(_AUTOCAST, self.autocast)
        global_state.set_global_attribute(_CALL, copy.copy(self.call))
        try:
            yield
        finally:
            global_state.set_global_attribute(_AUTOCAST, autocast)
            global_state.set_global_attribute(_CALL, call)


def mask_of(tensor: Any) -> Any:
    return getattr(tensor, "_keras_mask", None)


def set_mask(tensor: tf.Tensor, mask: Any) -> None:
    if mask is not None:
        tensor._keras_mask = mask


def stored_value(variable: Any) -> tf.Tensor:
    """A Keras variable's value in its own precision, whatever it is read in here."""
    return tf.convert_to_tensor(variable._value)
