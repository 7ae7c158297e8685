"""The models whose memory curves are recorded: small ones that show every shape of curve we know of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

ALL_PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
_OCTAVES = tuple(2**power for power in range(14))
HALF_OCTAVES = tuple(sorted({*_OCTAVES, *(3 * size for size in _OCTAVES[2:])}))
QUARTER_OCTAVES = tuple(sorted({1, 4, *(size * quarters // 4 for size in _OCTAVES[4:] for quarters in range(4, 8))}))


@dataclass(frozen=True, kw_only=True)
class ZooModel:
    """A model and its lanes to record.

    Each size runs `runs` times, in a fresh process each time. The largest batch of a lane is searched for under
    `walls` limits.
    """

    model: dict[str, Any]
    inputs: dict[str, Any]
    lengths: tuple[int | None, ...] = (None,)
    precisions: tuple[str, ...] = ("float32",)
    optimizer: str = "adam"
    training: dict[str, Any] = field(default_factory=dict)
    sizes: tuple[int, ...] = HALF_OCTAVES
    runs: int = 3
    walls: int = 2
    enough_bytes: int = 96 * 1024**2
    """The recording ends with the first size that takes this much."""

    def spec(self) -> dict[str, Any]:
        search: dict[str, Any] = {"batch_size": {"min": 1, "max": self.sizes[-1]}, "precision": list(self.precisions)}
        lengths = [length for length in self.lengths if length is not None]
        if lengths:
            search["sequence_length"] = lengths
        return {
            "model": self.model,
            "dataset": {"synthetic": {"inputs": self.inputs, "targets": {"shape": [1], "dtype": "float32"}}},
            "training": {"optimizer": self.optimizer, "loss": "mean_squared_error", **self.training},
            "search": search,
            "device": {"kind": "cpu", "memory_limit": "4GiB"},
        }


_TOKENS: dict[str, Any] = {"shape": ["sequence_length"], "dtype": "int32", "max": 2000}
_IMAGE = {"shape": [32, 32, 3], "dtype": "float32"}


def _layers(*layers: dict[str, Any] | str) -> dict[str, Any]:
    return {"layers": list(layers)}


def _text(*layers: dict[str, Any] | str) -> dict[str, Any]:
    return _layers(
        {"Input": {"shape": ["sequence_length"], "dtype": "int32"}},
        {"Embedding": {"input_dim": 2000, "output_dim": 32}},
        *layers,
        {"Dense": {"units": 1}},
    )


def _conv(filters: int, **args: Any) -> dict[str, Any]:
    return {"Conv2D": {"filters": filters, "kernel_size": 3, "padding": "same", "activation": "relu", **args}}


def _dense(units: int) -> dict[str, Any]:
    return {"Dense": {"units": units, "activation": "relu"}}


# For models with many lanes, or slow ones.
_FEW_SIZES: dict[str, Any] = {"sizes": (1, 8, *_OCTAVES[5:]), "runs": 2, "walls": 1, "enough_bytes": 64 * 1024**2}

ZOO = {
    "lstm": ZooModel(
        model=_text({"LSTM": {"units": 32}}),
        inputs=_TOKENS,
        lengths=(16, 24, 32, 48, 64, 80, 96, 128),
        precisions=ALL_PRECISIONS,
        **_FEW_SIZES,
    ),
    "transformer": ZooModel(
        model={"builder": "tests.benchmarks.builders:transformer"},
        inputs=_TOKENS,
        lengths=(16, 32, 48, 64, 96, 128, 192, 256),
        precisions=ALL_PRECISIONS,
        **_FEW_SIZES,
    ),
    "gru": ZooModel(
        model=_text({"GRU": {"units": 48}}), inputs=_TOKENS, lengths=(24, 48), precisions=("float32", "mixed_bfloat16")
    ),
    "cnn": ZooModel(
        model=_layers(
            {"Input": {"shape": [32, 32, 3]}},
            _conv(16),
            _conv(16),
            {"MaxPooling2D": {"pool_size": 2}},
            _conv(32),
            "BatchNormalization",
            "GlobalAveragePooling2D",
            {"Dense": {"units": 1}},
        ),
        inputs=_IMAGE,
        precisions=("float32", "mixed_bfloat16"),
    ),
    "resnet": ZooModel(
        model={"builder": "tests.benchmarks.builders:resnet"},
        inputs=_IMAGE,
        precisions=("float32", "mixed_bfloat16"),
    ),
    "unet": ZooModel(model={"builder": "tests.benchmarks.builders:unet"}, inputs=_IMAGE, optimizer="rmsprop"),
    "separable_cnn": ZooModel(
        model=_layers(
            {"Input": {"shape": [32, 32, 3]}},
            _conv(16, strides=2),
            {"SeparableConv2D": {"filters": 32, "kernel_size": 3, "padding": "same", "activation": "relu"}},
            {"SeparableConv2D": {"filters": 64, "kernel_size": 3, "padding": "same", "activation": "relu"}},
            "GlobalAveragePooling2D",
            {"Dense": {"units": 1}},
        ),
        inputs=_IMAGE,
        optimizer="sgd",
    ),
    "autoencoder": ZooModel(
        model=_layers(
            {"Input": {"shape": [784]}}, _dense(512), _dense(64), _dense(512), _dense(784), {"Dense": {"units": 1}}
        ),
        inputs={"shape": [784], "dtype": "float32"},
        precisions=("float32", "mixed_float16"),
    ),
    "wide_mlp": ZooModel(
        model=_layers({"Input": {"shape": [256]}}, _dense(2048), _dense(2048), {"Dense": {"units": 1}}),
        inputs={"shape": [256], "dtype": "float32"},
        precisions=("float32", "mixed_bfloat16"),
        enough_bytes=160 * 1024**2,
    ),
    "mlp_xla": ZooModel(
        model=_layers({"Input": {"shape": [128]}}, _dense(1024), _dense(1024), {"Dense": {"units": 1}}),
        inputs={"shape": [128], "dtype": "float32"},
        training={"jit_compile": True},
        sizes=QUARTER_OCTAVES,
        runs=2,
    ),
    "temporal_cnn": ZooModel(
        model=_text(
            {"Conv1D": {"filters": 48, "kernel_size": 5, "padding": "causal", "activation": "relu"}},
            {"Conv1D": {"filters": 48, "kernel_size": 5, "padding": "causal", "dilation_rate": 2}},
            "GlobalMaxPooling1D",
        ),
        inputs=_TOKENS,
        lengths=(64, 128),
    ),
    "big_embedding": ZooModel(
        model=_layers(
            {"Input": {"shape": [16], "dtype": "int32"}},
            {"Embedding": {"input_dim": 50000, "output_dim": 16}},
            "Flatten",
            _dense(256),
            {"Dense": {"units": 1}},
        ),
        inputs={"shape": [16], "dtype": "int32", "max": 50000},
        optimizer="adagrad",
    ),
    "two_ways": ZooModel(
        model={"builder": "tests.benchmarks.builders:two_ways"},
        inputs=_TOKENS,
        lengths=(32,),
        precisions=("float32", "mixed_bfloat16"),
        **_FEW_SIZES,
    ),
    "dense_net": ZooModel(model={"builder": "tests.benchmarks.builders:dense_net"}, inputs=_IMAGE),
    "mixer": ZooModel(
        model={"builder": "tests.benchmarks.builders:mixer"}, inputs=_IMAGE, precisions=("float32", "mixed_bfloat16")
    ),
}

# Numbers of `oomtune.search.tuning` were chosen without these, except when a failure after another size is doubted.
HELD_OUT = ("two_ways", "dense_net", "mixer")
