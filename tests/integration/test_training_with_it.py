"""The answer survives real training: a script that applies it, at the same hard limit, for two epochs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.conftest import Cli

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


def train(cli: Cli, tuned: Path, *words: str) -> dict[str, object]:
    script = cli.folder / "train.py"
    script.write_text(SCRIPT)
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


def test_accumulation_is_applied_by_the_optimizer(cli: Cli, spec_file: Callable[..., Path]) -> None:
    spec = spec_file(training__effective_batch_size=640, search__batch_size=[64], search__precision=["mixed_float16"])
    assert cli("probe", spec, "-q").code == 0
    assert train(cli, cli.folder / "model.tuned.yaml")["accumulation"] == 10
