"""Every example config probes to a confirmed answer, and the answer trains."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli import ROOT, Cli

BUCKETS = "text_buckets"
CONFIGS = [path for path in sorted((ROOT / "configs").glob("*.yaml")) if ".tuned" not in path.name]
# A smaller end of the search and a shorter confirmation, so that the suite stays fast.
QUICKER = ("--set", "search.batch_size.max=8", "--set", "trial.confirm_steps=4")

IN_BUCKETS = """
import json, sys, zlib
import oomtune, oomtune.keras

tuned = oomtune.load_tuned(sys.argv[1])
oomtune.keras.setup(tuned)

import keras
import numpy as np
import tensorflow as tf

rows = [json.loads(line) for line in open(sys.argv[2])]
tokens = [[1 + zlib.crc32(word.encode()) % 999 for word in row["text"].split()] for row in rows]
samples = tf.data.Dataset.from_tensor_slices((tf.ragged.constant(tokens, tf.int32), [row["label"] == "good" for row in rows]))
samples = samples.map(lambda words, label: (tf.convert_to_tensor(words), tf.cast(label, tf.int32))).repeat(12)

model = keras.Sequential([keras.Input((None,), dtype="int32"), keras.layers.Embedding(1000, 48), keras.layers.GRU(48),
                          keras.layers.Dense(2)])
model.compile(**oomtune.keras.compile_args(tuned))

class LossIsFinite(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        assert np.isfinite(logs["loss"])

batches = oomtune.keras.bucketed(samples, tuned)
model.fit(batches, epochs=2, verbose=0, callbacks=[LossIsFinite()])
trained = [(words.shape, int(tf.math.count_nonzero(words))) for words, _ in batches]
print(json.dumps({
    "shapes": sorted({tuple(shape) for shape, _ in trained}),
    "padding": 1 - sum(filled for _, filled in trained) / sum(shape[0] * shape[1] for shape, _ in trained),
    "peak": tf.config.experimental.get_memory_info("CPU:0")["peak"], "limit": tuned.memory_limit_bytes,
}))
"""


@pytest.fixture
def configs(cli: Cli) -> Path:
    ignored = shutil.ignore_patterns("*.tuned.yaml", "__pycache__")
    return Path(shutil.copytree(ROOT / "configs", cli.folder / "configs", ignore=ignored))


@pytest.mark.parametrize("path", [path for path in CONFIGS if path.stem != BUCKETS], ids=lambda path: path.stem)
def test_each_config_probes_to_a_confirmed_answer(cli: Cli, configs: Path, path: Path) -> None:
    ran = cli("probe", configs / path.name, "--json", *QUICKER, timeout=600)
    assert ran.code == 0, ran.err
    assert ran.document["confirmed"] is True
    assert ran.document["memory"]["peak_bytes"] <= ran.document["memory"]["budget_bytes"]
    assert (configs / f"{path.stem}.tuned.yaml").is_file()


def test_the_training_script_is_probed_by_the_command_in_its_docstring(cli: Cli, configs: Path) -> None:
    folder = configs / "train_script"
    stated = re.search(r"^ +oomtune (probe .*)$", (folder / "train.py").read_text(), re.MULTILINE)
    assert stated is not None
    options = stated[1].partition("train.py")[2]
    assert (
        f"oomtune probe --script configs/train_script/train.py{options}"
        in (ROOT / "oomtune/guide/scripts.md").read_text()
    )
    before, after = shlex.split(stated[1])[:-3], shlex.split(stated[1])[-3:]
    elsewhere = Cli(folder)
    elsewhere.environment["XDG_STATE_HOME"] = str(cli.folder / "state")
    ran = elsewhere(*before, *QUICKER, "--json", *after)
    assert ran.code == 0, ran.err
    assert sorted(path.name for path in folder.iterdir()) == ["train.py", "train.tuned.yaml"]


def test_training_in_the_tuned_buckets_stays_within_the_limit_and_saves_padding(cli: Cli, configs: Path) -> None:
    quicker = ("--set", "search.resolution=0.2", "--set", "search.buckets=3")
    ran = cli("probe", configs / f"{BUCKETS}.yaml", "--json", *quicker, timeout=600)
    assert ran.code == 0, ran.err
    buckets, at_length = ran.document["buckets"], ran.document["dataset"]["at_length"]
    assert len(buckets["boundaries"]) == len(buckets["batch_sizes"]) == 3
    (cli.folder / "train.py").write_text(IN_BUCKETS)
    trained = subprocess.run(
        [sys.executable, "train.py", f"configs/{BUCKETS}.tuned.yaml", f"configs/{BUCKETS}.jsonl"],
        capture_output=True,
        text=True,
        cwd=cli.folder,
        check=False,
    )
    assert trained.returncode == 0, trained.stderr
    training = json.loads(trained.stdout)
    full = set(zip(buckets["batch_sizes"], buckets["boundaries"], strict=True))
    assert full <= set(map(tuple, training["shapes"])), "every bucket trains at its full batch"
    assert training["peak"] <= training["limit"]
    assert training["padding"] < 0.6 * at_length[0]["padding_share"]
