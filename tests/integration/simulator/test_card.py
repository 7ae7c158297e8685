"""TensorFlow on a simulated card: its real GPU path, its real allocator and its real out-of-memory errors."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import Any

import pytest

PREPARE = """
import json, os
from oomtune.simulator.build import build_simulator
from oomtune.simulator.load import XLA_FLAGS, LoadedSimulator, SimulatedCard
MIB = 2**20
T4 = SimulatedCard(
    name="Tesla T4", compute_capability=(7, 5), multiprocessors=40, total_bytes=15102 * MIB, context_bytes=103 * MIB
)
built = build_simulator(lambda text: None)
simulator = LoadedSimulator(built.folder, hooks=built.has_hooks)
simulator.set_cards([T4] * COUNT)
os.environ["XLA_FLAGS"] = XLA_FLAGS
import keras, numpy as np, tensorflow as tf
from keras import layers

def fit(model, batch, shape, dtype="float32", **compile):
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), **compile)
    with tf.device("CPU"):
        data = tf.data.Dataset.from_tensors((np.zeros((batch, *shape), dtype), np.zeros((batch,), "int32"))).repeat()
    history = model.fit(data, steps_per_epoch=2, verbose=0).history
    return {"loss": history["loss"][0], "peak": tf.config.experimental.get_memory_info("GPU:0")["peak"]}
"""


def start(code: str, count: int) -> subprocess.CompletedProcess[str]:
    program = f"COUNT = {count}\n{PREPARE}{code}"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)


def run(code: str, count: int = 1) -> Any:
    ran = start(f"{code}\nprint(json.dumps(answer))", count)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout.splitlines()[-1])


def test_tensorflow_creates_the_card_with_its_own_limit() -> None:
    code = """
details = tf.config.experimental.get_device_details(tf.config.list_physical_devices("GPU")[0])
from tensorflow.python.client import device_lib
limit = [one.memory_limit for one in device_lib.list_local_devices() if one.device_type == "GPU"][0]
answer = {"name": details["device_name"], "capability": details["compute_capability"], "limit": limit}
"""
    answer = run(code)
    assert (answer["name"], answer["capability"]) == ("Tesla T4", [7, 5])
    # 15,102 MiB less the context and TensorFlow's own reserve of 1,050 MiB for compute capability 7.
    assert answer["limit"] == (15102 - 103 - 1050) * 2**20


@pytest.mark.parametrize("precision", ["float32", "mixed_float16"])
def test_a_transformer_and_an_rnn_and_convolutions_train(precision: str) -> None:
    code = f"""
keras.mixed_precision.set_global_policy({precision!r})
words = keras.Input((32,), dtype="int32")
hidden = layers.Embedding(100, 64)(words)
hidden = layers.LayerNormalization()(hidden + layers.MultiHeadAttention(2, 32, dropout=0.1)(hidden, hidden))
hidden = layers.Bidirectional(layers.LSTM(16))(hidden)
sequences = keras.Model(words, layers.Dense(2, dtype="float32")(hidden))
images = keras.Sequential([
    keras.Input((32, 32, 3)), layers.Conv2D(8, 3), layers.BatchNormalization(), layers.MaxPooling2D(),
    layers.GlobalAveragePooling2D(), layers.Dense(2, dtype="float32"),
])
answer = [fit(sequences, 8, (32,), "int32"), fit(images, 8, (32, 32, 3)), simulator.unknown_functions()]
"""
    sequences, images, unknown = run(code)
    assert unknown == []
    assert min(sequences["peak"], images["peak"]) > 0
    assert math.isfinite(sequences["loss"])
    assert math.isfinite(images["loss"])


def test_a_step_that_needs_more_than_the_card_has_raises_tensorflows_own_error() -> None:
    code = """
import time
model = keras.Sequential([keras.Input((1024,)), layers.Dense(8192), layers.Dense(8192), layers.Dense(2)])
began = time.monotonic()
try:
    answer = fit(model, 131072, (1024,), jit_compile=False)
except tf.errors.ResourceExhaustedError as error:
    answer = {"message": str(error)}
"""
    message = run(code)["message"]
    assert "OOM when allocating tensor" in message
    assert "GPU_0_bfc" in message


def test_a_function_that_the_simulator_does_not_have_fails_and_is_named() -> None:
    ran = start("tf.linalg.svd(tf.ones([8, 8]))", count=1)
    assert ran.returncode != 0  # TensorFlow itself gives up on a solver that can't be created
    assert "the simulator does not know cusolverDnCreate" in ran.stderr


def test_children_of_one_process_get_cards_of_their_own() -> None:
    code = """
import os
def limit_on(card):
    out, into = os.pipe()
    if os.fork() == 0:
        simulator.set_cards([card])
        from tensorflow.python.client import device_lib
        limits = [one.memory_limit for one in device_lib.list_local_devices() if one.device_type == "GPU"]
        os.write(into, json.dumps(limits).encode())
        os._exit(0)
    os.close(into)
    with os.fdopen(out) as pipe:
        return json.loads(pipe.read())
import dataclasses
answer = [limit_on(T4), limit_on(dataclasses.replace(T4, total_bytes=8000 * MIB))]
"""
    first, second = run(code)
    assert second[0] < first[0]


def test_two_cards_train_together_and_each_has_a_peak() -> None:
    code = """
with tf.distribute.MirroredStrategy().scope():
    model = keras.Sequential([keras.Input((64,)), layers.Dense(512), layers.Dense(2)])
    fit(model, 32, (64,))
answer = [tf.config.experimental.get_memory_info(f"GPU:{index}")["peak"] for index in range(2)]
"""
    peaks = run(code, count=2)
    assert all(peak > 0 for peak in peaks)
