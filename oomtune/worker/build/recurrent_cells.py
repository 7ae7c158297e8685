"""A model with a GRU in place of each LSTM."""

from __future__ import annotations

from typing import Any

import keras

from oomtune.errors import TrialCrashed
from oomtune.worker.build.layers import first_words

_CANT = "a GRU can't take the LSTM's place here"
_ONLY_OF_LSTM = ("unit_forget_bias",)


def with_gru(model: keras.Model) -> keras.Model:
    if model.compiled:
        raise TrialCrashed(f"{_CANT}: the model comes compiled, and a copy of it would not be")
    if not isinstance(model, keras.Sequential) and not getattr(model, "inputs", None):
        raise TrialCrashed(f"{_CANT}: the model is subclassed, so its layers can't be exchanged")
    try:
        lighter = keras.models.clone_model(model, clone_function=_exchanged, recursive=_has_models(model))
    except (TypeError, ValueError) as error:
        raise TrialCrashed(f"{_CANT}: {first_words(error)}") from None
    for layer in lighter._flatten_layers():
        if isinstance(layer, keras.layers.LSTM):
            raise TrialCrashed(f"{_CANT}: {layer.name} is inside another layer, or of a class of its own")
    return lighter


def _has_models(model: keras.Model) -> bool:
    return any(isinstance(layer, keras.Model) for layer in model.layers)


def _exchanged(layer: keras.layers.Layer) -> keras.layers.Layer:
    if type(layer) is keras.layers.LSTM:
        return _gru(layer)
    if isinstance(layer, keras.layers.Bidirectional) and type(layer.forward_layer) is keras.layers.LSTM:
        # A backward layer that is not made from the forward one is in the configuration.
        own = "backward_layer" in layer.get_config()
        return keras.layers.Bidirectional(
            _gru(layer.forward_layer),
            backward_layer=_gru(layer.backward_layer) if own else None,
            merge_mode=layer.merge_mode,
            name=layer.name,
        )
    return type(layer).from_config(layer.get_config())


def _gru(lstm: keras.layers.LSTM) -> keras.layers.GRU:
    if lstm.return_state:
        raise TrialCrashed(f"{_CANT}: the model passes the LSTM's two states on, and a GRU has one")
    config: dict[str, Any] = {key: value for key, value in lstm.get_config().items() if key not in _ONLY_OF_LSTM}
    return keras.layers.GRU.from_config(config)
