"""The text of a starter spec: complete, commented, and one that probes as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oomtune.domain import Inspection, TensorSpec
from oomtune.spec.script_source import Option, fits_of_one_model, options_of, subcommands_of

_LENGTH = "sequence_length"
_BATCH_OPTIONS = ("--batch-size", "--batch_size", "--batchsize", "--batch", "--bs", "-b")
# Others that speak of a batch's size, such as --train_batch_size, but not of one that is none of training's.
_BATCH_WORDS = re.compile(r"batch.*(size|sz)", re.IGNORECASE)
_NOT_TRAINING = re.compile(r"eval|val|test|pred|infer|accum", re.IGNORECASE)
_LENGTH_OPTIONS = (
    "--sequence-length", "--sequence_length", "--seq-length", "--seq_length", "--seq-len", "--seq_len", "--seqlen",
    "--max-length", "--max_length", "--max-len", "--max_len", "--maxlen", "--max-seq-length", "--max_seq_length",
)  # fmt: skip

_SPARSE = "sparsecategoricalcrossentropy"

_STARTER_MODEL = """\
model:                        # or builder, keras_file, application, train_step, script
  layers:                     # Keras layers by class name, in order
    - Input: {shape: [sequence_length], dtype: int32}
    - Embedding: {input_dim: 5000, output_dim: 64}
    - LSTM: {units: 64}
    - Dense: {units: 2}

dataset:                      # or npz, npy, csv, jsonl, text, tfrecord, images, python, tfds: your own data
  synthetic:                  # random samples; sequence_length stands for the value under trial
    inputs: {shape: [sequence_length], dtype: int32, max: 5000}
    targets: {shape: [], dtype: int32, max: 2}

training:
  optimizer: adam
  loss: {class_name: SparseCategoricalCrossentropy, config: {from_logits: true}}
"""
_SEARCH = """\
search:
  batch_size: {batch_size}
{length}  precision: [float32]       # most preferred first; add mixed_bfloat16 or mixed_float16
  objective: tokens           # tokens | batch_size | sequence_length | throughput
"""
_LENGTHS = (64, 128, 256)
_BATCH_SIZES = "{min: 1, max: 1024}"
_DEVICE = """\
device:
  kind: auto                  # gpu if there is one, else cpu
  memory_limit: auto          # what is free; or a size such as 2GiB, or instead of it like: T4
"""


def starter(name: str) -> str:
    """A small model of our own to begin with."""
    return _spec(name, _STARTER_MODEL, lengths=_LENGTHS)


def from_model(name: str, way: str, source: str, seen: Inspection, *, allow_code: bool = False) -> str:
    """A spec for a model whose inputs and outputs were seen. `way` is `keras_file` or `builder`."""
    trusted = ["  allow_code: true\n"] if allow_code else []
    lines = [
        f"model:\n  {way}: {_flow(source)}" + ("" if allow_code else "\n"),
        *trusted,
        "dataset:                      # or npz, npy, csv, jsonl, text, tfrecord, images, python, tfds: your own data",
        "  synthetic:                  # random samples of the shapes that the model has",
        *_tensors("inputs", seen.inputs),
        *_tensors("targets", {output: _target(seen, output) for output in seen.outputs}),
        "",
        "training:",
    ]
    if seen.compiled:
        lines[-1] = "# The model comes compiled; a training section with optimizer and loss would compile it anew.\n"
    else:
        lines += ["  optimizer: adam", *_losses(seen), ""]
    varies = any(_LENGTH in tensor.shape for tensor in (*seen.inputs.values(), *seen.outputs.values()))
    only = f"{seen.batch_size!s:<16}# the model takes no other"
    return _spec(
        name,
        "\n".join(lines),
        lengths=(seen.lengths or _LENGTHS) if varies else (),
        batch_size=_BATCH_SIZES if seen.batch_size is None else only,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptSpec:
    """A spec for a training script, and what the user has to fill in before it can be probed."""

    text: str
    unset: tuple[str, ...] = ()


def from_script(name: str, path: str, text: str) -> ScriptSpec | None:
    """A spec for a training script; None when it has no option that could be its batch size."""
    options = options_of(text)
    batch, length = _one_of(options, _BATCH_OPTIONS) or _of_a_batch(options), _one_of(options, _LENGTH_OPTIONS)
    if batch is None:
        return None
    arguments = [batch, "{batch_size}"] + ([length, "{sequence_length}"] if length else [])
    required = [option for option in options if option.required and not {batch, length} & set(option.names)]
    for option in sorted(required, key=lambda option: option.is_positional):
        value = option.choice or f"SET_{option.name.strip('-').replace('-', '_').upper()}"
        if option.takes_several and not option.is_positional:
            arguments = [option.name, value, *arguments]  # first: it would take what is positional for its own
        else:
            arguments += [value] if option.is_positional else [option.name, value]
    unset = tuple(option.name for option in required if option.choice is None)
    note = f"    # The script requires {', '.join(unset)}: set what begins with SET_ first.\n" if unset else ""
    commands = subcommands_of(text)
    if commands:
        note += f"    # It has commands of its own, {', '.join(commands)}: put the one that trains first in args.\n"
    model = f"model:\n  script:\n    path: {_flow(path)}\n{note}    args: {_flow(arguments)}\n"
    if (fits := fits_of_one_model(text)) > 1:
        model += (
            f"    # fits: {fits}                 # it calls fit in {fits} places: measure each, not only the first\n"
        )
    return ScriptSpec(text=_spec(name, model, lengths=_LENGTHS if length is not None else ()), unset=unset)


def _of_a_batch(options: Iterable[Option]) -> str | None:
    """The shortest option that speaks of the size of training's batches."""
    names = [name for option in options for name in option.names if name.startswith("--")]
    found = [name for name in names if _BATCH_WORDS.search(name) and not _NOT_TRAINING.search(name)]
    return min(found, key=len, default=None)


def _one_of(options: Iterable[Option], known: Iterable[str]) -> str | None:
    names = {name for option in options for name in option.names}
    return next((name for name in known if name in names), None)


def _spec(name: str, sections: str, *, lengths: Sequence[int] = (), batch_size: str = _BATCH_SIZES) -> str:
    line = f"  sequence_length: {_flow(list(lengths))}\n" if lengths else ""
    search = _SEARCH.format(batch_size=batch_size, length=line)
    head = f"# Made by oomtune init. Probe it with: oomtune probe {Path(name).name}\n"
    return "\n".join([head, sections, search, _DEVICE])


def _tensors(side: str, tensors: Mapping[str, TensorSpec]) -> list[str]:
    if len(tensors) == 1:
        return [f"    {side}: {_tensor(next(iter(tensors.values())))}"]
    return [f"    {side}:", *(f"      {_flow(name)}: {_tensor(tensor)}" for name, tensor in tensors.items())]


def _tensor(tensor: TensorSpec) -> str:
    words = [f"shape: {_flow(list(tensor.shape))}", f"dtype: {tensor.dtype}"]
    return "{" + ", ".join(words + ([f"max: {int(tensor.max)}"] if tensor.max is not None else [])) + "}"


def _target(seen: Inspection, output: str) -> TensorSpec:
    """What the loss compares the output with: classes where it is a distribution over them, else numbers like it."""
    tensor = seen.outputs[output]
    loss = seen.losses.get(output) if seen.compiled else _loss(seen, output).replace("_", "")
    classes = loss == _SPARSE
    if classes and tensor.shape and isinstance(tensor.shape[-1], int):
        return TensorSpec(shape=tensor.shape[:-1], dtype="int32", max=float(tensor.shape[-1]))
    return TensorSpec(shape=tensor.shape, dtype="float32")


def _losses(seen: Inspection) -> list[str]:
    """One for all outputs where that suits, else one for each."""
    losses, note = {output: _loss(seen, output) for output in seen.outputs}, "change it if yours is another"
    if len(set(losses.values())) == 1:
        return [f"  loss: {next(iter(losses.values()))}  # by the last activation: {note}"]
    named = (f"    {_flow(output)}: {loss}" for output, loss in losses.items())
    return [f"  loss:                       # by the last activation of each output: {note}", *named]


def _loss(seen: Inspection, output: str) -> str:
    """One that suits the activation of the output."""
    shape, activation = seen.outputs[output].shape, seen.activations.get(output)
    if activation == "softmax" and shape and isinstance(shape[-1], int):
        return "sparse_categorical_crossentropy"
    return "binary_crossentropy" if activation == "sigmoid" else "mean_squared_error"


def _flow(value: Any) -> str:
    """A value on one line of YAML: words plain where that is safe, else quoted as in JSON, which YAML reads too."""
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    plain = isinstance(value, str) and value.replace("_", "").replace(".", "").replace(":", "").isalnum()
    safe = plain and not value[0].isdigit() and not value.endswith(":") and value.lower() not in _WORDS
    return value if safe else json.dumps(value)


_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
