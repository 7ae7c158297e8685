"""A broken model or dataset stops the probe at its first trial: exit 6, with a traceback of the user's code only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.cli import Cli, Ran, processes_with

BUILDER = """\
import os, signal, subprocess, sys, time
import keras
import tensorflow as tf

def good(units=8):
    print("noise on stdout")
    return keras.Sequential([keras.Input((64,)), keras.layers.Dense(units), keras.layers.Dense(1)])

def raises():
    raise RuntimeError("my model is broken")

def returns_nothing():
    pass

def leaves():
    sys.exit("bye")

def dies():
    os._exit(0)

def killed():
    os.kill(os.getpid(), signal.SIGKILL)

def hangs():
    time.sleep(3600)

class IsKilled(keras.layers.Layer):
    def call(self, x):
        tf.py_function(self.look, [x], [])
        return x
    def look(self, x):
        if len(x) > 4:
            os.kill(os.getpid(), signal.SIGKILL)

def is_killed():
    return keras.Sequential([keras.Input((64,)), IsKilled(), keras.layers.Dense(1)])

def has_children():
    subprocess.Popen(["sleep", "3600"])
    return good()

def compiled():
    model = good()
    model.compile("sgd", "mse")
    return model

class Leaky(keras.Model):
    kept = []
    def __init__(self):
        super().__init__()
        self.inner = keras.layers.Dense(1)
    def call(self, x):
        return self.inner(x)
    def train_step(self, data):
        self.kept.append(tf.zeros([50_000]))
        return super().train_step(data)

def leaky():
    model = Leaky()
    model.build((None, 64))
    return model

def explodes():
    return keras.Sequential([keras.Input((64,)), keras.layers.Lambda(lambda x: x * 1e30), keras.layers.Dense(1), keras.layers.Lambda(lambda x: x * 1e30)])

not_callable = 7
"""
# Code that changes files when it is imported, and imports another module.
UNTIDY = """\
import os, subprocess
import keras, numpy as np
import beside
open("log.txt", "w").write("imported")
os.makedirs("runs/today", exist_ok=True)
os.remove("precious.txt")
subprocess.run(["touch", "by_a_program"])

def build():
    assert os.path.exists("runs/today") and open("log.txt").read() == "imported"
    return keras.Sequential([keras.Input((64,)), keras.layers.Dense(1)])

def data():
    return np.zeros((50, 64), "float32"), np.zeros((50, 1), "float32")
"""


@pytest.fixture
def probe(cli: Cli, spec_file: Callable[..., Path]) -> Callable[..., Ran]:
    """Probe a function of the module above."""
    (cli.folder / "my_models.py").write_text(BUILDER)

    def run(builder: str, *words: str, env: dict[str, str] | None = None, **overrides: Any) -> Ran:
        chosen = {"model__layers": None, "model__builder": builder, "search__batch_size": [4, 8], **overrides}
        return cli("probe", spec_file(**chosen), "--json", *words, env=env)

    return run


def test_a_builder_is_imported_from_the_specs_folder_and_its_output_stays_off_stdout(probe: Callable[..., Ran]) -> None:
    ran = probe("my_models:good", model__args={"units": 4})
    assert ran.code == 0, ran.err
    assert ran.document["best"]["batch_size"] == 8


def test_code_that_writes_on_import_changes_no_file(cli: Cli, spec_file: Callable[..., Path]) -> None:
    (cli.folder / "untidy.py").write_text(UNTIDY)
    (cli.folder / "beside.py").write_text("UNITS = 1\n")
    (cli.folder / "precious.txt").write_text("mine")
    spec = spec_file(model={"builder": "untidy:build"}, dataset={"python": "untidy:data"}, search__batch_size=8)
    before = set(cli.folder.rglob("*"))
    assert cli("init", "made.yaml", "untidy:build").code == 0
    ran = cli("probe", spec, "--json")
    assert ran.code == 0, ran.err
    made = {path.name for path in cli.folder.rglob("*") if "state" not in path.parts and path not in before}
    assert made == {"made.yaml", "model.tuned.yaml"}
    assert (cli.folder / "precious.txt").read_text() == "mine"


@pytest.mark.parametrize("entries", [{"model": {"builder": "leaving:it"}}, {"dataset": {"python": "leaving:it"}}])
def test_a_module_that_ends_the_process_on_import_is_reported(
    cli: Cli, spec_file: Callable[..., Path], entries: dict[str, Any]
) -> None:
    (cli.folder / "leaving.py").write_text("import sys\nsys.exit(4)\n")
    ran = cli("probe", spec_file(**entries), "--json")
    ((section, entry),) = entries.items()
    (key,) = entry
    assert ran.code == 6
    message = f"{section}.{key}: importing 'leaving' ended the process: sys.exit(4)"
    assert ran.document["error"]["message"] == message
    assert {path.name for path in cli.folder.iterdir()} == {"leaving.py", "model.yaml", "state"}


def test_a_compiled_model_keeps_its_own_optimizer_and_loss(probe: Callable[..., Ran]) -> None:
    assert probe("my_models:compiled", training__loss=None).code == 0


@pytest.mark.parametrize(
    ("builder", "message", "has_traceback"),
    [
        ("my_models:raises", "my model is broken", True),
        ("my_models:returns_nothing", "returned NoneType, not a keras.Model", False),
        ("my_models:no_such", "my_models has no function 'no_such'", False),
        ("my_models:not_callable", "has no function 'not_callable'", False),
        ("no_module_here:build", "no module named 'no_module_here'", False),
        ("my_models:leaves", "SystemExit: bye", True),
        ("my_models:dies", "exited with code 0 without a reply", False),
        ("my_models:explodes", "the loss is", False),
    ],
)
def test_a_broken_builder_is_reported(
    probe: Callable[..., Ran], builder: str, message: str, has_traceback: bool
) -> None:
    ran = probe(builder)
    assert ran.code == 6, ran.err
    assert message in ran.document["error"]["message"]
    assert len(ran.document["trials"]) == 1
    assert ran.document["trials"][0]["outcome"] == "crash"
    assert ("Traceback (most recent call last)" in ran.err) == has_traceback
    assert ("my_models.py" in ran.err) == has_traceback
    assert "oomtune/worker" not in ran.err


def test_a_loss_that_diverges_on_random_data_is_reported_and_does_not_stop_the_probe(
    cli: Cli, spec_file: Callable[..., Path]
) -> None:
    """Each step at this learning rate makes the weights about a thousand times larger, and the loss grows with their square."""
    spec = spec_file(
        training__optimizer={"class_name": "SGD", "config": {"learning_rate": 1e6}},
        training__metrics=[],
        search__batch_size=[8, 16],
        trial__confirm_steps=20,
    )
    ran = cli("probe", spec, "--json")
    assert ran.code == 0, ran.err
    (finding,) = [finding for finding in ran.document["findings"] if finding["kind"] == "loss"]
    assert "the data is random, and memory use is not affected" in finding["message"]


def test_an_argument_that_the_builder_does_not_take_is_reported(probe: Callable[..., Ran]) -> None:
    ran = probe("my_models:good", model__args={"unit": 4})
    assert ran.code == 6
    assert "takes no argument 'unit'" in ran.document["error"]["message"]


def test_once_the_model_is_fixed_the_same_command_goes_on(cli: Cli, probe: Callable[..., Ran]) -> None:
    assert probe("my_models:raises").code == 6
    (cli.folder / "my_models.py").write_text(
        BUILDER.replace('raise RuntimeError("my model is broken")', "return good()")
    )
    assert probe("my_models:raises").code == 0


def test_a_layer_with_impossible_arguments_is_reported_by_its_position(
    cli: Cli, spec_file: Callable[..., Path]
) -> None:
    spec = spec_file(model__layers=[{"Input": {"shape": [64]}}, {"Dense": {"units": -3}}])
    ran = cli("probe", spec, "--json")
    assert ran.code == 6
    assert ran.document["error"]["message"].startswith("model.layers[1] (Dense): ")
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"training__optimizer": "adamm"}, "training.optimizer"),
        ({"training__loss": "no_such_loss"}, "training.loss"),
        ({"training__loss": None}, "training.loss is not set"),
        ({"dataset__synthetic__inputs": {"shape": [63], "dtype": "float32"}}, "has samples of shape [63]"),
    ],
)
def test_impossible_training_is_reported_in_terms_of_the_spec(
    cli: Cli, spec_file: Callable[..., Path], overrides: dict[str, Any], message: str
) -> None:
    ran = cli("probe", spec_file(**overrides), "--json")
    assert ran.code == 6
    assert message in ran.document["error"]["message"]
    assert "Traceback" not in ran.err
    if "samples" in message:
        assert ran.document["trials"] == [], "reported before any trial"
        assert ran.document["error"]["where"].endswith("model.yaml:16")
        assert "model.yaml:16: dataset.synthetic.inputs has samples of shape [63]" in ran.err


def test_a_trial_that_hangs_is_ended_at_its_deadline_and_counts_as_a_timeout(
    probe: Callable[..., Ran], marker: str
) -> None:
    ran = probe("my_models:hangs", env={"MARKER": marker}, trial__timeout="3s")
    assert ran.code == 3
    assert {trial["outcome"] for trial in ran.document["trials"]} == {"timeout"}
    assert processes_with(marker) == []


def test_a_trial_that_the_kernel_kills_ran_out_of_host_memory_and_not_of_device_memory(
    probe: Callable[..., Ran],
) -> None:
    ran = probe("my_models:killed")
    assert ran.code == 3
    assert ran.document["trials"][0]["outcome"] == "host_oom"
    assert "SIGKILL" in ran.document["trials"][0]["error"]["message"]


def test_a_climb_that_is_killed_keeps_the_sizes_that_it_ran(probe: Callable[..., Ran]) -> None:
    ran = probe("my_models:is_killed", search__batch_size=[2, 4, 8, 16])
    assert ran.code == 0, ran.err
    assert ran.document["trials"][0]["outcome"] == "host_oom"
    assert ran.document["trials"][0]["points"][0]["batch_size"] == 2
    assert ran.document["best"]["batch_size"] == 4


def test_processes_that_a_model_starts_end_with_their_trial(probe: Callable[..., Ran], marker: str) -> None:
    assert probe("my_models:has_children", env={"MARKER": marker}).code == 0
    assert processes_with(marker) == []


def test_memory_that_grows_from_step_to_step_is_reported_with_its_line(
    cli: Cli, probe: Callable[..., Ran], tmp_path: Path
) -> None:
    ran = probe("my_models:leaky", training__run_eagerly=True, search__batch_size=8, trial__confirm_steps=20)
    assert ran.code == 0, ran.err
    assert ran.document["leak_bytes_per_step"] == pytest.approx(200_000, rel=0.3)
    (finding,) = ran.document["findings"]
    assert finding["kind"] == "kept_tensors"
    line = BUILDER.splitlines().index("        self.kept.append(tf.zeros([50_000]))") + 1
    assert finding["where"] == str(tmp_path / f"my_models.py:{line}")
    tuned = yaml.safe_load((tmp_path / "model.tuned.yaml").read_text())
    assert tuned["tuned"]["evidence"]["findings"] == [finding]
    again = cli("probe", tmp_path / "model.yaml", "-q")
    assert "Leaky.kept, a list, holds 1 more tensor after each step, 195 KiB per step" in again.out
    assert f"my_models.py:{line}" in again.out
