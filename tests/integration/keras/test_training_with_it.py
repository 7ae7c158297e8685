"""The answer survives real training: a script that applies it, at the same hard limit, for two epochs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.support.cli import Cli

SCRIPT = """
import json, sys
import oomtune, oomtune.keras

tuned = oomtune.load_tuned(sys.argv[1])
oomtune.keras.setup(tuned)

import keras
import numpy as np
import tensorflow as tf

assert keras.config.dtype_policy().name == tuned.precision
model = keras.Sequential([
    keras.Input((64,)),
    keras.layers.Dense(512, activation="relu"),
    keras.layers.Dense(512, activation="relu"),
    keras.layers.Dense(1),
])
model.compile(**oomtune.keras.compile_args(tuned))
samples = tuned.batch_size * 5 + 3
row = (np.ones(64, "float32"), np.ones(1, "float32"))
data = tf.data.Dataset.from_tensors(row).repeat(samples)
train, valid = oomtune.keras.batch(data, tuned), oomtune.keras.batch(data.take(tuned.batch_size * 2 + 1), tuned)
seen = max(len(x) for x, _ in train)
history = model.fit(train, validation_data=valid, epochs=2, verbose=0)
memory = tf.config.experimental.get_memory_info("CPU:0")
wall = "not looked for"
if "--find-wall" in sys.argv:  # the allocator waits ten seconds before it says no
    try:
        held = tf.zeros([tuned.memory_limit_bytes // 4 + 1])
        wall = "none"
    except tf.errors.ResourceExhaustedError:
        wall = "there"
optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)  # float16 wraps it in loss scaling
print(json.dumps({
    "batch": seen, "epochs": len(history.history["val_loss"]), "peak": memory["peak"], "wall": wall,
    "accumulation": optimizer.gradient_accumulation_steps, "limit": tuned.memory_limit_bytes,
    "optimizer": type(optimizer).__name__,
}))
"""

AS_ONE_BATCH = """
import json, sys
import oomtune, oomtune.keras

tuned = oomtune.load_tuned(sys.argv[1])
if "--as-tuned" in sys.argv:
    oomtune.keras.set_policy(tuned)

import keras
import numpy as np
import tensorflow as tf

def model(**compiled):
    keras.utils.set_random_seed(1)
    layers = [keras.Input((64,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(1)]
    made = keras.Sequential(layers)
    made.compile(**compiled)
    return made

rng = np.random.default_rng(0)
x, y = rng.normal(size=(2 * tuned.effective_batch_size, 64)).astype("float32"), rng.normal(size=(2 * tuned.effective_batch_size, 1))
arguments = oomtune.keras.compile_args(tuned)
small, large = model(**arguments), model(**arguments | {"optimizer": "adam"})
before = [weight.copy() for weight in small.get_weights()]
small.fit(oomtune.keras.batch(tf.data.Dataset.from_tensor_slices((x, y)), tuned), verbose=0)
large.fit(x, y, batch_size=tuned.effective_batch_size, shuffle=False, verbose=0)
pairs = list(zip(small.get_weights(), large.get_weights()))
norm = lambda pairs: sum(float(((a - b) ** 2).sum()) for a, b in pairs) ** 0.5
print(json.dumps({
    "scales": type(small.optimizer).__name__ == type(large.optimizer).__name__ == "LossScaleOptimizer",
    "apart of moved": norm(pairs) / norm(zip(before, large.get_weights())),
    "apart": max(float(abs(a - b).max()) for a, b in pairs),
    "moved": min(float(abs(a - b).max()) for a, (b, _) in zip(before, pairs)),
}))
"""


def train(cli: Cli, tuned: Path, *words: str, text: str = SCRIPT) -> dict[str, object]:
    script = cli.folder / "train.py"
    script.write_text(text)
    ran = subprocess.run(
        [sys.executable, str(script), str(tuned), *words], capture_output=True, text=True, cwd=cli.folder, check=False
    )
    assert ran.returncode == 0, ran.stderr
    document: dict[str, object] = json.loads(ran.stdout)
    return document


def test_a_script_trains_two_epochs_with_exactly_the_tuned_values_at_the_same_limit(
    cli: Cli, spec_file: Callable[..., Path]
) -> None:
    assert cli("probe", spec_file(training__optimizer="adam"), "-q").code == 0
    tuned = cli.folder / "model.tuned.yaml"
    best = cli("probe", cli.folder / "model.yaml", "--json").document["best"]
    seen = train(cli, tuned, "--find-wall")
    assert seen["batch"] == best["batch_size"]
    assert seen["epochs"] == 2
    assert seen["wall"] == "there"
    assert seen["optimizer"] == "Adam"
    assert isinstance(seen["peak"], int)
    assert seen["peak"] <= 24 * 1024**2 == seen["limit"]


def test_accumulation_moves_the_weights_as_one_large_batch_does(cli: Cli, spec_file: Callable[..., Path]) -> None:
    spec = spec_file(
        training__effective_batch_size=640,
        training__optimizer="adam",
        search__batch_size=[64],
        search__precision=["mixed_float16"],
    )
    assert cli("probe", spec, "-q").code == 0
    tuned = cli.folder / "model.tuned.yaml"
    assert train(cli, tuned)["accumulation"] == 10
    seen = train(cli, tuned, text=AS_ONE_BATCH)
    assert isinstance(seen["apart"], float)
    assert isinstance(seen["moved"], float)
    # Adam moves each weight by about its learning rate, 0.001, in each of the two updates.
    assert seen["moved"] > 1e-3
    assert seen["apart"] < 1e-5
    # In float16, inside of loss scaling, gradients are rounded, and Adam makes the smallest ones count as much.
    scaled = train(cli, tuned, "--as-tuned", text=AS_ONE_BATCH)
    assert scaled["scales"] is True
    assert isinstance(scaled["apart of moved"], float)
    assert scaled["apart of moved"] < 0.05


BLOCKS = """
import keras
from keras import layers

def build():
    inputs = keras.Input((64,))
    hidden = layers.Dense(32)(inputs)
    for _ in range(8):
        hidden = hidden + layers.Dense(32)(layers.Dropout(0.1)(layers.Dense(512, activation="gelu")(hidden)))
    return keras.Model(inputs, layers.Dense(1)(hidden))
"""
REMATERIALISED = """
import json, sys
import oomtune, oomtune.keras

tuned = oomtune.load_tuned(sys.argv[1])
oomtune.keras.setup(tuned, limit_memory=False)

import os
os.environ |= {"TF_CPU_ALLOCATOR_USE_BFC": "1", "TF_CPU_BFC_MEM_LIMIT_IN_MB": "1024"}
import blocks, numpy as np, tensorflow as tf

model = blocks.build()
model.compile(**oomtune.keras.compile_args(tuned))
names = oomtune.keras.rematerialise(model, tuned) if "--with" in sys.argv else []
for _ in range(2):
    tf.config.experimental.reset_memory_stats("CPU:0") if model.built else None
    model.train_on_batch(np.ones((tuned.batch_size, 64), "float32"), np.ones((tuned.batch_size, 1), "float32"))
print(json.dumps({"peak": tf.config.experimental.get_memory_info("CPU:0")["peak"], "names": names}))
"""


def test_a_search_takes_rematerialisation_where_it_wins_and_a_script_has_the_same(
    cli: Cli, spec_file: Callable[..., Path]
) -> None:
    (cli.folder / "blocks.py").write_text(BLOCKS)
    spec = spec_file(
        model={"builder": "blocks:build"},
        search__batch_size=[16, 256],
        search__remat=["none", "full"],
        # Eight blocks without a norm: from unlucky weights larger steps lead to an infinite loss.
        training__optimizer={"class_name": "SGD", "config": {"learning_rate": 1e-5}},
        device__memory_limit="16MiB",
    )
    ran = cli("probe", spec, "--json")
    assert ran.code == 0, ran.err
    assert (ran.document["best"]["batch_size"], ran.document["best"]["remat"]) == (256, "full")
    tuned = cli.folder / "model.tuned.yaml"
    plain, again = train(cli, tuned, text=REMATERIALISED), train(cli, tuned, "--with", text=REMATERIALISED)
    assert again["names"]
    assert isinstance(plain["peak"], int)
    assert isinstance(again["peak"], int)
    assert again["peak"] < 0.6 * plain["peak"]
