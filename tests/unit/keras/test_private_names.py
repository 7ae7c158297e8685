"""Each private name of Keras and TensorFlow that oomtune relies on exists in the installed release."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import keras
import pytest
import tensorflow as tf

from oomtune.keras import private_keras, private_tensorflow

MODEL = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name="dense")])
MODEL.compile(loss="mse")

TENSORFLOW = [
    "EagerTensor",
    "FuncGraph",
    "file_io.FileIO",
    "list_local_devices",
    "op_def_registry.get",
    "polymorphic_function._frequent_tracing_detector_manager",
    "record.VariableWatcher",
    "record.could_possibly_record",
    "record.should_record_backprop",
    "record.stop_recording",
    "script_ops.FuncRegistry",
    "tape.variable_accessed",
]
KERAS = [
    "CallState.current",
    "Functional._run_through_graph",
    "compute_output_spec",
    "operation_fn",
    "saving_lib.DiskIOStore",
    "saving_lib._load_state",
]
OBJECTS: list[tuple[str, Any, str]] = [
    ("keras.Model", MODEL, "_flatten_layers"),
    ("keras.Model", MODEL, "_symbolic_build"),
    ("keras.Sequential", MODEL, "_functional._nodes_by_depth"),
    ("keras.Sequential", MODEL, "_functional._outputs_struct"),
    ("keras.Variable", MODEL.weights[0], "_value"),
]


def require(owner: object, path: str, library: str, version: str) -> None:
    try:
        attrgetter(path)(owner)
    except AttributeError:
        pytest.fail(f"{library} {version} no longer has {path}: find its replacement, or lower the upper bound")


@pytest.mark.parametrize("name", TENSORFLOW)
def test_tensorflow_still_has_each_private_name(name: str) -> None:
    require(private_tensorflow, name, "TensorFlow", tf.__version__)


@pytest.mark.parametrize("name", KERAS)
def test_keras_still_has_each_private_name(name: str) -> None:
    require(private_keras, name, "Keras", keras.__version__)


@pytest.mark.parametrize(("kind", "owner", "name"), OBJECTS)
def test_keras_objects_still_have_each_private_attribute(kind: str, owner: object, name: str) -> None:
    require(owner, name, f"{kind} of Keras", keras.__version__)


def test_keras_still_keeps_the_call_context_and_the_stateless_scope_where_we_read_them() -> None:
    observed = []

    class Probe(keras.layers.Layer):  # type: ignore[misc]  # Keras ships no types
        def call(self, inputs: Any) -> Any:
            observed.append((private_keras.is_stateless(), private_keras.training_mode({})))
            return inputs

    layer = Probe()
    layer(tf.zeros([1, 2]), training=True)
    with keras.StatelessScope():
        layer(tf.zeros([1, 2]), training=False)
    assert observed[-2:] == [(False, True), (True, False)]
