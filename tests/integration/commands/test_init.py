"""`oomtune init` writes specs that probe without edits."""

from __future__ import annotations

from pathlib import Path

import keras
import pytest
import yaml

from oomtune.commands.init import example_spec, spec_from_model, spec_from_script
from oomtune.domain import Builder, Inspection, InspectOrder, TensorSpec
from oomtune.spec import load_spec
from oomtune.spec.script_source import fits_of_one_model
from oomtune.worker.build import inspection
from tests.support.cli import Cli

QUICK = ("--memory-limit", "1GiB", "--set", "search.batch_size.max=16", "--set", "trial.confirm_steps=2", "--json")
BUILDER = """\
import keras

def build(sequence_length, units=4):
    words = keras.Input((sequence_length,), dtype="int32", name="words")
    about = keras.Input((3,), name="about")
    read = keras.layers.LSTM(units)(keras.layers.Embedding(30, 4)(words))
    both = keras.layers.Concatenate()([read, about])
    kind = keras.layers.Dense(5, activation="softmax", name="kind")(both)
    return keras.Model([words, about], kind)
"""
SEEN = """\
import keras
from keras import layers, ops

class Positions(layers.Layer):
    def __init__(self):
        super().__init__()
        self.table = layers.Embedding(100, 4)
    def call(self, x):
        return x + self.table(ops.arange(ops.shape(x)[1]))

def positions():
    x = keras.Input((None,), dtype="int32")
    return keras.Model(x, layers.GlobalMaxPooling1D()(Positions()(layers.Embedding(9, 4)(x))))

def halved(sequence_length):
    x = keras.Input((sequence_length, 1), name="x")
    half = layers.UpSampling1D(2)(layers.Conv1D(4, 3, strides=2, padding="same")(x))
    return keras.Model(x, layers.Concatenate()([x, half]))

def stateful():
    x = keras.Input(batch_shape=(16, 5, 2))
    return keras.Model(x, layers.LSTM(3, stateful=True)(x))

def several():
    x = keras.Input((4,))
    model = keras.Model(x, {name: layers.Dense(size)(x) for name, size in (("kind", 3), ("score", 1))})
    model.compile("sgd", {"kind": "sparse_categorical_crossentropy", "score": "mse"})
    return model
"""
SCRIPT = """\
import argparse, keras, numpy as np
parser = argparse.ArgumentParser()
parser.add_argument("-b", "--bs", type=int)
parser.add_argument("--max_len", type=int)
given = parser.parse_args()
model = keras.Sequential([keras.Input((given.max_len,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(np.zeros((64, given.max_len)), np.zeros((64, 1)), batch_size=given.bs)
"""


def probes(cli: Cli, spec: str) -> None:
    ran = cli("probe", spec, *QUICK)
    assert ran.code == 0, ran.err
    assert ran.document["best"]["batch_size"] == 16


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_a_spec_for_a_saved_model_probes_without_edits(cli: Cli) -> None:
    model = keras.Sequential(
        [keras.Input((None,), dtype="int32"), keras.layers.Embedding(30, 4), keras.layers.GRU(4), keras.layers.Dense(1)]
    )
    model.save(cli.folder / "tagger.keras")
    classes = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="softmax")])
    classes.compile("sgd", "sparse_categorical_crossentropy")
    classes.save(cli.folder / "classes.keras")
    keras.Sequential([keras.Input((4,)), keras.layers.Lambda(lambda x: 2 * x)]).save(cli.folder / "coded.keras")
    ran = cli("init", "coded.keras")
    assert (ran.code, "(oomtune init --allow-code) if you trust the file" in ran.err) == (6, True)
    assert cli("init", "coded.keras", "--allow-code").code == 0
    assert yaml.safe_load((cli.folder / "coded.yaml").read_text())["model"]["allow_code"] is True
    assert cli("init", "classes.keras").code == 0
    targets = yaml.safe_load((cli.folder / "classes.yaml").read_text())["dataset"]["synthetic"]["targets"]
    assert targets == {"shape": [], "dtype": "int32", "max": 3}, "by the loss that it comes compiled with"
    ran = cli("init", "tagger.keras")
    assert (ran.code, ran.out) == (0, "wrote tagger.yaml; probe it with: oomtune probe tagger.yaml\n"), ran.err
    written = yaml.safe_load((cli.folder / "tagger.yaml").read_text())
    assert written["dataset"]["synthetic"]["inputs"] == {"shape": ["sequence_length"], "dtype": "int32", "max": 30}
    probes(cli, "tagger.yaml")


def test_a_spec_for_a_builder_names_its_inputs_and_probes_without_edits(cli: Cli) -> None:
    (cli.folder / "nets.py").write_text(BUILDER)
    assert cli("init", "mine.yaml", "nets:build").code == 0
    written = yaml.safe_load((cli.folder / "mine.yaml").read_text())["dataset"]["synthetic"]
    assert written["inputs"]["about"] == {"shape": [3], "dtype": "float32"}
    assert written["targets"] == {"shape": [], "dtype": "int32", "max": 5}
    probes(cli, "mine.yaml")
    assert cli("init", "mine.yaml").code == 2, "what is there is never overwritten"
    (cli.folder / "nets.py").write_text("def build(width): ...")
    ran = cli("init", "other.yaml", "nets:build")
    assert (ran.code, "nets:build needs 'width'" in ran.err) == (6, True)
    assert not (cli.folder / "other.yaml").exists()


def test_a_spec_for_a_script_uses_its_options_and_probes_without_edits(cli: Cli) -> None:
    (cli.folder / "train.py").write_text(SCRIPT)
    assert cli("init", "train.py").code == 0
    written = yaml.safe_load((cli.folder / "train.yaml").read_text())
    assert written["model"]["script"]["args"] == ["--bs", "{batch_size}", "--max_len", "{sequence_length}"]
    probes(cli, "train.yaml")
    (cli.folder / "fed.py").write_text(
        SCRIPT.replace("given =", "parser.add_argument('--data', required=True)\ngiven =")
    )
    ran = cli("init", "fed.py")
    assert (ran.code, ran.err) == (0, "oomtune: fed.py requires --data: fill in the SET_ values in fed.yaml\n")


def test_a_script_with_subcommands_gets_a_comment_in_the_spec() -> None:
    text = (
        "sub = p.add_subparsers()\nt = sub.add_parser('train')\nt.add_argument('--batch-size')\nsub.add_parser('eval')"
    )
    made = spec_from_script("t.yaml", "t.py", text)
    assert made is not None
    assert "# The script has subcommands (train, eval): put the one that trains first in args." in made.text


def test_the_example_spec_is_complete() -> None:
    spec = load_spec(yaml.safe_load(example_spec("model.yaml"))).spec
    assert spec.space.sequence_lengths == (64, 128, 256)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["missing.keras"], "no such file: missing.keras"),
        (["notes.txt"], "expected a .keras file, module:function, a .py script, or nothing"),
        (["missing.py"], "missing.py can't be read"),
        (["a.yaml", "b.yaml"], "expected at most one spec and one source"),
        (["bare.py"], "bare.py has no option for its batch size"),
        (["nowhere/a.yaml"], "nowhere/a.yaml can't be written"),
    ],
)
def test_unusable_sources_are_reported(cli: Cli, words: list[str], said: str) -> None:
    (cli.folder / "bare.py").write_text("print('hello')")
    ran = cli("init", *words)
    assert ran.code in (2, 5)
    assert said in ran.err


def test_inspected_lengths_batches_and_losses_are_written() -> None:
    tokens = TensorSpec(shape=("sequence_length",), dtype="int32", max=9)
    seen = Inspection(
        inputs={"x": tokens},
        outputs={"kind": TensorSpec(shape=(3,), dtype="float32"), "score": TensorSpec(shape=(1,), dtype="float32")},
        activations={"kind": "linear", "score": "linear"},
        compiled=True,
        losses={"kind": "sparsecategoricalcrossentropy", "score": "meansquarederror"},
        lengths=(64,),
        batch_size=16,
    )
    written = yaml.safe_load(spec_from_model("m.yaml", "keras_file", "m.keras", seen))
    assert written["search"]["batch_size"] == 16
    assert written["search"]["sequence_length"] == [64]
    assert written["dataset"]["synthetic"]["targets"] == {
        "kind": {"shape": [], "dtype": "int32", "max": 3},
        "score": {"shape": [1], "dtype": "float32"},
    }


def test_inspection_finds_the_lengths_and_batch_that_a_model_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "seen_nets.py").write_text(SEEN)
    monkeypatch.syspath_prepend(str(tmp_path))

    def seen(function: str) -> Inspection:
        order = InspectOrder(model=Builder(function=f"seen_nets:{function}"), folder=str(tmp_path), sequence_length=137)
        return inspection.inspect(order)

    assert seen("positions").lengths == (64,)
    halved = seen("halved")
    assert (halved.inputs["x"].shape, halved.lengths) == (("sequence_length", 1), (64, 128, 256))
    assert seen("stateful").batch_size == 16
    assert seen("several").losses == {"kind": "sparsecategoricalcrossentropy", "score": "meansquarederror"}


def test_names_with_a_meaning_in_yaml_are_quoted() -> None:
    seen = Inspection(
        inputs={"yes": TensorSpec(shape=(2,), dtype="float32"), "a: b": TensorSpec(shape=(), dtype="float32")},
        outputs={"x": TensorSpec(shape=(1,), dtype="float32")},
        activations={"x": "sigmoid"},
        compiled=False,
    )
    written = yaml.safe_load(spec_from_model("m.yaml", "keras_file", "my model.keras", seen))
    assert set(written["dataset"]["synthetic"]["inputs"]) == {"yes", "a: b"}
    assert written["model"]["keras_file"] == "my model.keras"
    assert written["training"]["loss"] == "binary_crossentropy"


def test_outputs_with_other_activations_get_a_loss_each() -> None:
    seen = Inspection(
        inputs={"x": TensorSpec(shape=(2,), dtype="float32")},
        outputs={name: TensorSpec(shape=(3,), dtype="float32") for name in ("kind", "tags", "size")},
        activations={"kind": "softmax", "tags": "sigmoid", "size": "linear"},
        compiled=False,
    )
    written = yaml.safe_load(spec_from_model("m.yaml", "builder", "nets:build", seen))
    assert written["training"]["loss"] == {
        "kind": "sparse_categorical_crossentropy",
        "tags": "binary_crossentropy",
        "size": "mean_squared_error",
    }
    assert written["dataset"]["synthetic"]["targets"]["kind"] == {"shape": [], "dtype": "int32", "max": 3}
    assert written["dataset"]["synthetic"]["targets"]["tags"] == {"shape": [3], "dtype": "float32"}


def test_a_script_is_read_and_not_run() -> None:
    text = "raise SystemExit\nparser.add_argument('--batch-size')"
    made = spec_from_script("t.yaml", "t.py", text)
    assert made is not None
    assert "{batch_size}" in made.text


@pytest.mark.parametrize(
    ("lines", "fits"),
    [
        ("model.fit(x)\nmodel.fit(y)", 2),
        ("scaler.fit(x)\nmodel.fit(x)\nmodel.fit_generator(x)", 1),
        ("if a:\n    model.fit(x)\nelif b:\n    model.fit(y)\nelse:\n    self.model.fit(y)\nmodel.fit(z)", 2),
        ("def train(model):\n    for x in y:\n        model.fit(x)\n    model.fit(z)", 2),
        ("print(3)", 0),
    ],
)
def test_calls_of_fit_are_counted_in_the_text_of_a_script(lines: str, fits: int) -> None:
    made = spec_from_script("t.yaml", "t.py", f"parser.add_argument('--batch-size')\n{lines}")
    assert made is not None
    assert (f"# fits: {fits} " in made.text) == (fits > 1)
    assert fits_of_one_model(lines) == fits


@pytest.mark.parametrize(
    ("lines", "args", "unset"),
    [
        (
            "parser.add_argument('--batch-size')\nparser.add_argument('-d', '--data-dir', required=True)",
            ["--batch-size", "{batch_size}", "--data-dir", "SET_DATA_DIR"],
            ("--data-dir",),
        ),
        (
            "p.add_argument('corpus')\np.add_argument('rest', nargs='*')\np.add_argument('--bs', required=True)\n"
            "p.add_argument('--size', choices=['small', 'large'], required=True)",
            ["--bs", "{batch_size}", "--size", "small", "SET_CORPUS"],
            ("corpus",),
        ),
        (
            "flags.DEFINE_integer('batch_size', 32, 'samples')\nflags.DEFINE_string('data', None, '')\n"
            "flags.DEFINE_integer('max_len', 8, '')\nflags.mark_flags_as_required(['data'])",
            ["--batch_size", "{batch_size}", "--max_len", "{sequence_length}", "--data", "SET_DATA"],
            ("--data",),
        ),
        (
            "p.add_argument('--eval_batch_size')\np.add_argument('--train_batch_size')\np.add_argument('data_dir')\n"
            "p.add_argument('--ids', nargs='+', required=True)",
            ["--ids", "SET_IDS", "--train_batch_size", "{batch_size}", "SET_DATA_DIR"],
            ("data_dir", "--ids"),
        ),
        (
            "p.add_argument('--batch-size')\ng = p.add_mutually_exclusive_group(required=True)\n"
            "g.add_argument('--csv')\ng.add_argument('--npz')",
            ["--batch-size", "{batch_size}", "--csv", "SET_CSV"],
            ("--csv",),
        ),
        (
            "@click.option('--batch', type=int, required=True)\n@click.option('--out', required=False)\ndef main(): ...",
            ["--batch", "{batch_size}"],
            (),
        ),
    ],
)
def test_required_arguments_are_filled_in_or_marked_for_the_user(
    lines: str, args: list[str], unset: tuple[str, ...]
) -> None:
    made = spec_from_script("t.yaml", "t.py", lines)
    assert made is not None
    assert yaml.safe_load(made.text)["model"]["script"]["args"] == args
    assert made.unset == unset
    assert not unset or f"requires {', '.join(unset)}:" in made.text
