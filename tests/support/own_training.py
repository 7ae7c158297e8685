"""Training by the user's own code: scripts to run, and a way to run one trial of a script or a step function."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from oomtune.domain import Budget, Candidate, Climb, Confirm, Outcome, ProbeSpec, Purpose, Search, Trial
from oomtune.spec import load_spec
from oomtune.trials.local import ForkRunner
from oomtune.trials.worker_host import WorkerHost
from tests.support.specs import CPU

_LIMIT = Budget(limit_bytes=64 * 1024**2)

_NETWORK = """\
import argparse, os, shutil, subprocess, sys
import h5py, keras, numpy as np, tensorflow as tf
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, required=True)
size = parser.parse_args().batch_size
model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(512, activation="relu"), keras.layers.Dense(1)])
model.compile("adam", "mse")
x, y = np.random.rand(4000, 64).astype("float32"), np.zeros((4000, 1), "float32")
"""
FIT_AND_WRITE = """\
shutil.rmtree("precious")
os.makedirs("runs/today", exist_ok=True)
with open("runs/today/config.txt", "w") as file:
    file.write(str(size))
assert os.path.exists("runs/today/config.txt") and open("runs/today/config.txt").read() == str(size)
assert os.listdir("runs") == ["today"] and "train.py" in os.listdir(".")
shutil.rmtree("runs/today")
os.makedirs("runs/today")
shutil.copy("train.py", "runs/today/copy.py")
os.symlink("train.py", "latest")
before = os.stat("train.py").st_mtime_ns
os.utime("train.py")
assert os.stat("train.py").st_mtime_ns == before
model.save_weights("start.weights.h5")
model.load_weights("start.weights.h5")
subprocess.run(["touch", "by_a_subprocess"], check=False)
with open("precious/notes.txt", "a") as file:
    file.write("added")
os.rename("precious", "kept")
assert os.listdir("kept") == ["notes.txt"]
with h5py.File("new/../features.h5", "w") as file:
    file["x"] = x[:2]
assert h5py.File("features.h5")["x"].shape == (2, 64)
with tf.io.TFRecordWriter("samples.tfrecord") as writer:
    writer.write(b"one")
assert len(list(tf.data.TFRecordDataset(["samples.tfrecord"]))) == 1
samples = tf.data.Dataset.from_tensor_slices((x, y)).cache("cached").repeat().batch(size)
samples.take(1).save("kept_dataset")
assert len(list(tf.data.Dataset.load("kept_dataset"))) == 1
next(iter(samples))
tf.io.write_file("note.txt", "mine")
assert tf.io.read_file("note.txt") == b"mine"
model.fit(x, y, batch_size=size, epochs=2, validation_split=0.1, verbose=2, callbacks=[
    keras.callbacks.ModelCheckpoint("best.keras"), keras.callbacks.TensorBoard("logs")])
open("never", "w").close()
"""


def write_script(folder: Path, code: str) -> dict[str, Any]:
    """Write `train.py` and return the `model` section for it. The code finds a model, `x`, `y` and `size` defined."""
    (folder / "train.py").write_text(_NETWORK + code)
    return {"script": {"path": "train.py", "args": ["--batch-size", "{batch_size}"]}}


def run_trial(
    host: WorkerHost, folder: Path, model: dict[str, Any], *, purpose: Purpose = Purpose.SEARCH, **sections: Any
) -> Outcome:
    """Run one trial at batch size 32, or a climb, and return its outcome."""
    (folder / "spec.yaml").touch()
    spec = _load({"model": model, "trial": {"confirm_steps": 6, "timeout": "2m"}, **sections}, folder)
    runner = ForkRunner(spec=spec, device=CPU, budget=_LIMIT, notice=print, host=host)
    lane = Candidate(batch_size=1, precision=spec.space.precisions[0]).lane
    trials: dict[Purpose, Trial] = {
        Purpose.CALIBRATE: Climb(lane=lane, sizes=(4, 16, 64, 256, 1024)),
        Purpose.SEARCH: Search(candidate=lane.at(32)),
        Purpose.CONFIRM: Confirm(candidate=lane.at(32)),
    }
    return runner.run(trials[purpose])


def _load(values: dict[str, Any], folder: Path) -> ProbeSpec:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return dataclasses.replace(load_spec(values).spec, folder=str(folder))
