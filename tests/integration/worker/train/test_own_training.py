"""Training by the user's own code: steps from a factory, and whole scripts, run as they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oomtune.domain import Budget, Candidate, Climb, Confirm, Kind, Outcome, ProbeSpec, Purpose, Search, Stage, Trial
from oomtune.spec import load_spec
from oomtune.trials.local import ForkRunner
from oomtune.trials.worker_host import WorkerHost
from tests.support.specs import CPU

LIMIT = Budget(limit_bytes=64 * 1024**2)

GAN = """\
import keras
import tensorflow as tf

def make(batch_size, precision, width=64):
    generator = keras.Sequential([keras.Input((16,)), keras.layers.Dense(width, activation="relu"),
                                  keras.layers.Dense(32, dtype="float32")])
    critic = keras.Sequential([keras.Input((32,)), keras.layers.Dense(width, activation="relu"),
                               keras.layers.Dense(1, dtype="float32")])
    ours, theirs = keras.optimizers.Adam(1e-3), keras.optimizers.SGD(1e-3)
    assert keras.config.dtype_policy().name == precision

    @tf.function
    def step(real, _targets):
        noise = tf.random.normal((batch_size, 16))
        with tf.GradientTape() as tape, tf.GradientTape() as other:
            made = generator(noise, training=True)
            loss = -tf.reduce_mean(critic(made, training=True))
            critic_loss = tf.reduce_mean(critic(made)) - tf.reduce_mean(critic(real, training=True))
        ours.apply_gradients(zip(tape.gradient(loss, generator.trainable_variables), generator.trainable_variables))
        theirs.apply_gradients(zip(other.gradient(critic_loss, critic.trainable_variables), critic.trainable_variables))
        return {"generator": loss, "critic": critic_loss}

    def validate():
        return tf.reduce_mean(generator(tf.random.normal((batch_size, 16))))

    return step, validate
"""
NETWORK = """\
import argparse, os, shutil, subprocess, sys
import h5py, keras, numpy as np, tensorflow as tf
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, required=True)
size = parser.parse_args().batch_size
model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(512, activation="relu"), keras.layers.Dense(1)])
model.compile("adam", "mse")
x, y = np.random.rand(4000, 64).astype("float32"), np.zeros((4000, 1), "float32")
"""
FIT = """\
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


@pytest.fixture(scope="module")
def host() -> Iterator[WorkerHost]:
    made = WorkerHost("fork")
    yield made
    made.close()


def run(
    host: WorkerHost, folder: Path, model: dict[str, Any], *, purpose: Purpose = Purpose.SEARCH, **entries: Any
) -> Outcome:
    values = {"model": model, "trial": {"confirm_steps": 6, "timeout": "2m"}, **entries}
    (folder / "spec.yaml").touch()
    spec = dataclasses.replace(_spec(values, folder), folder=str(folder))
    runner = ForkRunner(spec=spec, device=CPU, budget=LIMIT, notice=print, host=host)
    lane = Candidate(batch_size=1, precision=spec.space.precisions[0]).lane
    trials: dict[Purpose, Trial] = {
        Purpose.CALIBRATE: Climb(lane=lane, sizes=(4, 16, 64, 256, 1024)),
        Purpose.SEARCH: Search(candidate=lane.at(32)),
        Purpose.CONFIRM: Confirm(candidate=lane.at(32)),
    }
    return runner.run(trials[purpose])


def _spec(values: dict[str, Any], folder: Path) -> ProbeSpec:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return load_spec(values).spec


def script(folder: Path, text: str) -> dict[str, Any]:
    (folder / "train.py").write_text(NETWORK + text)
    return {"script": {"path": "train.py", "args": ["--batch-size", "{batch_size}"]}}


def test_a_factory_of_steps_with_two_optimizers_is_run_validated_and_climbed(host: WorkerHost, tmp_path: Path) -> None:
    (tmp_path / "gan.py").write_text(GAN)
    model = {"train_step": "gan:make", "args": {"width": 128}}
    data = {"synthetic": {"inputs": {"shape": [32]}, "targets": {"shape": [1]}}}
    mixed = {"precision": ["mixed_bfloat16"]}
    confirmed = run(host, tmp_path, model, purpose=Purpose.CONFIRM, dataset=data, search=mixed)
    assert (confirmed.kind, confirmed.steps_run, confirmed.validated) == (Kind.FITS, 6, True), confirmed.error
    climbed = run(host, tmp_path, model, purpose=Purpose.CALIBRATE, dataset=data)
    assert [point.batch_size for point in climbed.points][:2] == [4, 16], climbed.error
    assert all(point.peak_bytes > 0 for point in climbed.points)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def make(): return 3", "gan:make returned int, not a step"),
        ("def make():\n    def step(batch): ...\n    return step", "no dataset to fill them"),
        ("def make(size): ...", "gan:make needs 'size'"),
        ("import sys; sys.exit(3)", "importing 'gan' ended the process: sys.exit(3)"),
        ("def make():\n    return lambda: float('nan')", "the loss is nan at step 1"),
        ("def make():\n    return lambda a, b, c, d: 0.0", "model.train_step: the step of gan:make takes 4 arguments"),
    ],
)
def test_a_factory_that_is_wrong_is_named(host: WorkerHost, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "gan.py").write_text(text)
    outcome = run(host, tmp_path, {"train_step": "gan:make"})
    assert outcome.kind is Kind.CRASH
    assert outcome.error is not None
    assert said in outcome.error.message


def test_a_step_that_does_not_take_the_data_is_named_with_its_shapes(host: WorkerHost, tmp_path: Path) -> None:
    (tmp_path / "gan.py").write_text(GAN)
    data = {"synthetic": {"inputs": {"shape": [5]}, "targets": {"shape": [1]}}}
    outcome = run(host, tmp_path, {"train_step": "gan:make"}, dataset=data)
    assert outcome.kind is Kind.CRASH
    assert outcome.error is not None
    assert outcome.error.message.startswith("model.train_step: gan:make failed in its first step: ValueError: Input 0")
    assert "\n" not in outcome.error.message
    assert "dataset.synthetic.inputs has samples of shape [5]" in outcome.error.hint
    assert 'gan.py", line' in outcome.error.traceback
    assert "site-packages" not in outcome.error.traceback


def test_a_script_is_stopped_after_the_trials_steps_and_writes_nothing(host: WorkerHost, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "notes.txt").write_text("mine")
    outcome = run(host, tmp_path, script(tmp_path, FIT), purpose=Purpose.CONFIRM)
    assert (outcome.kind, outcome.stage, outcome.steps_run) == (Kind.FITS, Stage.DONE, 6), outcome.error
    assert outcome.validated
    assert (tmp_path / "precious" / "notes.txt").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["precious", "spec.yaml", "train.py"]


LOOPS = {
    "train_on_batch": "while True:\n    model.train_on_batch(x[:size], y[:size])\n",
    "a loop that says each step": "import oomtune\nwhile True:\n"
    "    loss = model.train_step((x[:size], y[:size]))['loss']\n    oomtune.step(loss)\n",
    "a loop that comes to its end": "import oomtune\nfor _ in range(2):\n    oomtune.step(0.5)\n",
}


@pytest.mark.parametrize("name", LOOPS)
def test_steps_of_a_scripts_own_loop_are_seen(host: WorkerHost, tmp_path: Path, name: str) -> None:
    outcome = run(host, tmp_path, script(tmp_path, LOOPS[name]))
    assert (outcome.kind, outcome.stage) == (Kind.FITS, Stage.DONE), outcome.error
    assert outcome.steps_run == (1 if "end" in name else 3)


@pytest.mark.parametrize("call", ["fit(x, y, batch_size=40_000)", "train_on_batch(x, y)"])
def test_a_script_that_catches_the_error_is_still_out_of_memory(host: WorkerHost, tmp_path: Path, call: str) -> None:
    large = "x, y = np.zeros((40_000, 64), 'float32'), np.zeros((40_000, 1))\n"
    caught = f"{large}try:\n    model.{call}\nexcept Exception:\n    model.fit(x[:9], y[:9])\n"
    assert run(host, tmp_path, script(tmp_path, caught)).kind is Kind.DEVICE_OOM


@pytest.mark.parametrize(
    ("policy", "kind"),
    [
        ("", Kind.CRASH),
        ("keras.config.set_dtype_policy('mixed_bfloat16')\n", Kind.FITS),
        ("model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(1, dtype='mixed_bfloat16')])\n", Kind.FITS),
    ],
)
def test_a_script_is_measured_in_the_precision_that_it_sets_itself(
    host: WorkerHost, tmp_path: Path, policy: str, kind: Kind
) -> None:
    text = f"{policy}model.compile('sgd', 'mse')\nmodel.fit(x, y, batch_size=size)\n"
    outcome = run(host, tmp_path, script(tmp_path, text), search={"precision": ["mixed_bfloat16"]})
    assert outcome.kind is kind, outcome.error
    if outcome.error is not None:
        assert "the script trains under float32, but this trial is for mixed_bfloat16" in outcome.error.message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("print('nothing to do')\nsys.exit()", "train.py ended before it had trained a step"),
        ("os._exit(0)", "model.script: train.py: the trial's process exited with code 0 without a reply"),
        ("sys.exit('no data here')", "ended by itself: sys.exit('no data here')"),
        ("model.predict(x[:8], verbose=0)", "ended before it had trained a step"),
        ("keras.config.set_dtype_policy('mixed_float16')\nmodel.fit(x, y)", "trains under mixed_float16"),
        ("y[:] = float('nan')\nmodel.fit(x, y)", "the loss is nan at step 1"),
        ("raise KeyError('mine')", "KeyError: 'mine'"),
        ("raise PermissionError", "PermissionError"),
        ("raise PermissionError(13, 'Permission denied', '/nowhere/at/all')", "PermissionError"),
        ("np.zeros(4).tofile('a')\nos.fork() or os.execvp('touch', ['touch', 'b'])\nos.wait()\nsys.exit(9)", "exit(9)"),
        ("import posix\nposix.open('made', os.O_CREAT | os.O_WRONLY)", "train.py may not write made during a trial"),
    ],
)
def test_a_script_that_does_not_train_is_named_with_what_to_do(
    host: WorkerHost, tmp_path: Path, text: str, said: str
) -> None:
    outcome = run(host, tmp_path, script(tmp_path, text))
    assert outcome.kind is Kind.CRASH
    assert outcome.error is not None
    assert said in outcome.error.message
    assert outcome.error.hint or "train.py" in outcome.error.traceback
    assert ("nothing to do" in text) == ("its last output: nothing to do; steps are seen in" in outcome.error.hint)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model.fit(x, y, batch_size=size)", ""),
        ("model.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(8))", "its largest batch had 8 samples"),
        ("while True:\n    model.train_on_batch(x[:5], y[:5])", "its largest batch had 5 samples"),
    ],
)
def test_a_script_that_does_not_use_its_batch_size_is_told_on(
    host: WorkerHost, tmp_path: Path, text: str, said: str
) -> None:
    outcome = run(host, tmp_path, script(tmp_path, text))
    assert outcome.kind is Kind.FITS, outcome.error
    found = [f"{finding.message} | {finding.hint}" for finding in outcome.findings]
    assert bool(found) == bool(said)
    assert all(f"given a batch size of 32, and {said}" in one and "uses --batch-size" in one for one in found)


FINE_TUNING = """\
body = keras.Sequential([keras.Input((64,)), keras.layers.Dense(1024), keras.layers.Dense(1024)])
body.trainable = False
model = keras.Sequential([keras.Input((64,)), body, keras.layers.Dense(1)])
model.compile("adam", "mse")
history = model.fit(x, y, batch_size=size, epochs=9, validation_split=0.1)
assert history.history["val_loss"], "a fit that is not the last returns as it does in training"
model.save("head.keras")
model = keras.models.load_model("head.keras")
model.layers[0].trainable = True
model.compile("adam", "mse")
model.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(size).take(1), epochs=9)
open("never", "w").close()
"""


def test_each_fit_of_a_script_is_measured_if_the_spec_says_so(host: WorkerHost, tmp_path: Path) -> None:
    model = script(tmp_path, FINE_TUNING)
    first = run(host, tmp_path, model)
    assert first.kind is Kind.FITS, first.error
    assert [finding.kind for finding in first.findings] == ["fits"]
    assert "train.py calls fit in 2 places, and the first was measured" in first.findings[0].message

    model["script"]["fits"] = 2
    both = run(host, tmp_path, model, purpose=Purpose.CONFIRM)
    assert (both.kind, both.steps_run, both.findings) == (Kind.FITS, 6, ()), both.error
    # The layers that are frozen at first, of 4 MiB, have gradients and two averages then.
    assert first.peak_bytes is not None
    assert both.peak_bytes is not None
    assert first.peak_bytes < 16 * 1024**2 < both.peak_bytes

    model["script"]["fits"] = 3
    less = run(host, tmp_path, model)
    assert less.error is not None
    assert "model.script.fits is 3, and train.py ended after 2" in less.error.message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["spec.yaml", "train.py"]
