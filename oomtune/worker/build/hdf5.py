"""Models in HDF5 files, Keras' older format: what they are made of, read without loading them.

Keras' own loader reads all weights too, and older ones run the code in a file whatever they are told.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import h5py
import keras

from oomtune.keras.compiling import deserialise

TRAINING = "training_config"
# The classes of a model that the format names without saying where they are from.
_MODELS = {"Functional": "Model", "Model": "Model", "Sequential": "Sequential"}
# Keras chooses what these stand for by what the model makes.
_CHOSEN = ("accuracy", "acc", "crossentropy", "ce")
_PLACES = (
    keras, keras.layers, keras.initializers, keras.regularizers, keras.constraints, keras.optimizers,
    keras.optimizers.schedules, keras.losses, keras.metrics, keras.dtype_policies,
    keras.activations,
)  # fmt: skip


def read(path: Path) -> Any:
    """The configuration of the model, with how it was compiled, if it was. Raises `KeyError` when there is none."""
    with h5py.File(path, "r") as file:
        if "model_config" not in file.attrs:
            raise KeyError("no model_config: it may hold weights alone")
        config = json.loads(file.attrs["model_config"])
        if isinstance(config, dict) and TRAINING in file.attrs:
            config[TRAINING] = _with_own_functions(json.loads(file.attrs[TRAINING]))
    if isinstance(config, dict) and config.get("class_name") in _MODELS:
        config |= {"module": "keras", "class_name": _MODELS[config["class_name"]], "registered_name": None}
    return config


def _with_own_functions(training: dict[str, Any]) -> dict[str, Any]:
    """How it was compiled, with functions of the user's own said to be such: the format has but their names."""
    placed = {key: _placed(training.get(key)) for key in ("loss", "metrics", "weighted_metrics")}
    return training | placed


def _placed(said: Any) -> Any:
    if isinstance(said, str) and said.lower() not in _CHOSEN and not _is_known(said):
        return {"module": "builtins", "class_name": "function", "config": said, "registered_name": said}
    if isinstance(said, dict) and "class_name" not in said:
        return {name: _placed(one) for name, one in said.items()}
    return [_placed(one) for one in said] if isinstance(said, list) else said


def _is_known(name: str) -> bool:
    """Does Keras have a loss or a metric of this name, be it a short one?"""
    for get in (keras.losses.get, keras.metrics.get):
        with contextlib.suppress(ValueError):
            get(name)
            return True
    return False


def is_keras_own(name: str) -> bool:
    """Is this one of Keras' classes? The format does not say where a class is from."""
    return name in ("Functional", "Policy") or any(hasattr(place, name) for place in _PLACES)


def compile_as_saved(model: keras.Model, training: dict[str, Any]) -> None:
    """Compile a model as it was when it was saved; not at all where this Keras can't read how that was."""
    try:
        arguments = {
            "optimizer": keras.optimizers.get(training["optimizer_config"]),
            "loss": deserialise(keras.losses.get, training.get("loss")),
            "loss_weights": training.get("loss_weights"),
            "metrics": deserialise(keras.metrics.get, training.get("metrics")),
            "weighted_metrics": deserialise(keras.metrics.get, training.get("weighted_metrics")),
        }
    except (KeyError, TypeError, ValueError):
        return
    model.compile(**arguments)
