"""Training scripts run unchanged: oomtune follows their steps, redirects their writes and reports their faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from oomtune.domain import Kind, Purpose, Stage
from oomtune.trials.worker_host import WorkerHost
from tests.support.own_training import FIT_AND_WRITE, run_trial, write_script

LOOPS = {
    "train_on_batch": "while True:\n    model.train_on_batch(x[:size], y[:size])\n",
    "a loop that calls oomtune.step": "import oomtune\nwhile True:\n"
    "    loss = model.train_step((x[:size], y[:size]))['loss']\n    oomtune.step(loss)\n",
    "a loop that ends": "import oomtune\nfor _ in range(2):\n    oomtune.step(0.5)\n",
}


def test_a_script_stops_after_the_steps_of_its_trial_and_changes_no_file(host: WorkerHost, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "notes.txt").write_text("mine")
    outcome = run_trial(host, tmp_path, write_script(tmp_path, FIT_AND_WRITE), purpose=Purpose.CONFIRM)
    assert (outcome.kind, outcome.stage, outcome.steps_run) == (Kind.FITS, Stage.DONE, 6), outcome.error
    assert outcome.validated
    assert (tmp_path / "precious" / "notes.txt").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["precious", "spec.yaml", "train.py"]


@pytest.mark.parametrize("name", LOOPS)
def test_the_steps_of_a_scripts_own_loop_are_followed(host: WorkerHost, tmp_path: Path, name: str) -> None:
    outcome = run_trial(host, tmp_path, write_script(tmp_path, LOOPS[name]))
    assert (outcome.kind, outcome.stage) == (Kind.FITS, Stage.DONE), outcome.error
    assert outcome.steps_run == (1 if "ends" in name else 3)


@pytest.mark.parametrize("call", ["fit(x, y, batch_size=40_000)", "train_on_batch(x, y)"])
def test_a_script_that_catches_the_error_still_runs_out_of_memory(host: WorkerHost, tmp_path: Path, call: str) -> None:
    large = "x, y = np.zeros((40_000, 64), 'float32'), np.zeros((40_000, 1))\n"
    caught = f"{large}try:\n    model.{call}\nexcept Exception:\n    model.fit(x[:9], y[:9])\n"
    assert run_trial(host, tmp_path, write_script(tmp_path, caught)).kind is Kind.DEVICE_OOM


@pytest.mark.parametrize(
    ("policy", "kind"),
    [
        ("", Kind.CRASH),
        ("keras.config.set_dtype_policy('mixed_bfloat16')\n", Kind.FITS),
        ("model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(1, dtype='mixed_bfloat16')])\n", Kind.FITS),
    ],
)
def test_a_script_sets_the_precision_under_trial_itself(
    host: WorkerHost, tmp_path: Path, policy: str, kind: Kind
) -> None:
    text = f"{policy}model.compile('sgd', 'mse')\nmodel.fit(x, y, batch_size=size)\n"
    outcome = run_trial(host, tmp_path, write_script(tmp_path, text), search={"precision": ["mixed_bfloat16"]})
    assert outcome.kind is kind, outcome.error
    if outcome.error is not None:
        assert "the script trains under float32, but this trial is for mixed_bfloat16" in outcome.error.message


@pytest.mark.parametrize(
    ("code", "message"),
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
def test_a_script_that_does_not_train_is_reported_with_what_to_do(
    host: WorkerHost, tmp_path: Path, code: str, message: str
) -> None:
    outcome = run_trial(host, tmp_path, write_script(tmp_path, code))
    assert outcome.kind is Kind.CRASH
    assert outcome.error is not None
    assert message in outcome.error.message
    assert outcome.error.hint or "train.py" in outcome.error.traceback
    assert ("nothing to do" in code) == ("its last output: nothing to do; steps are seen in" in outcome.error.hint)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("model.fit(x, y, batch_size=size)", ""),
        ("model.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(8))", "its largest batch had 8 samples"),
        ("while True:\n    model.train_on_batch(x[:5], y[:5])", "its largest batch had 5 samples"),
    ],
)
def test_a_script_that_ignores_its_batch_size_is_reported(
    host: WorkerHost, tmp_path: Path, code: str, message: str
) -> None:
    outcome = run_trial(host, tmp_path, write_script(tmp_path, code))
    assert outcome.kind is Kind.FITS, outcome.error
    reports = [f"{finding.message} | {finding.hint}" for finding in outcome.findings]
    assert bool(reports) == bool(message)
    assert all(f"given a batch size of 32, and {message}" in one and "uses --batch-size" in one for one in reports)


FINE_TUNING = """\
body = keras.Sequential([keras.Input((64,)), keras.layers.Dense(1024), keras.layers.Dense(1024)])
body.trainable = False
model = keras.Sequential([keras.Input((64,)), body, keras.layers.Dense(1)])
model.compile("adam", "mse")
history = model.fit(x, y, batch_size=size, epochs=9, validation_split=0.1)
assert history.history["val_loss"], "a fit that is not the last returns as in training"
model.save("head.keras")
model = keras.models.load_model("head.keras")
model.layers[0].trainable = True
model.compile("adam", "mse")
model.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(size).take(1), epochs=9)
open("never", "w").close()
"""


def test_each_fit_of_a_script_is_measured_if_the_spec_says_how_many(host: WorkerHost, tmp_path: Path) -> None:
    model = write_script(tmp_path, FINE_TUNING)
    first = run_trial(host, tmp_path, model)
    assert first.kind is Kind.FITS, first.error
    assert [finding.kind for finding in first.findings] == ["fits"]
    assert "train.py calls fit in 2 places, and the first was measured" in first.findings[0].message

    model["script"]["fits"] = 2
    both = run_trial(host, tmp_path, model, purpose=Purpose.CONFIRM)
    assert (both.kind, both.steps_run, both.findings) == (Kind.FITS, 6, ()), both.error
    # Once trainable, the frozen layers of 4 MiB add gradients and two averages.
    assert first.peak_bytes is not None
    assert both.peak_bytes is not None
    assert first.peak_bytes < 16 * 1024**2 < both.peak_bytes

    model["script"]["fits"] = 3
    less = run_trial(host, tmp_path, model)
    assert less.error is not None
    assert "model.script.fits is 3, and train.py ended after 2" in less.error.message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["spec.yaml", "train.py"]
