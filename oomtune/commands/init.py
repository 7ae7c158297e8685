"""What `oomtune init` does: write a complete, commented starter spec that probes without further edits."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oomtune.domain import Builder, Inspection, InspectOrder, KerasFile, TensorSpec
from oomtune.errors import UsageProblem
from oomtune.spec.files import is_file, is_there
from oomtune.spec.script_source import Option, fits_of_one_model, options_of, subcommands_of
from oomtune.storage.atomic import write_whole
from oomtune.trials.worker_host import WorkerHost

_MODEL_FILES = (".keras", ".h5", ".hdf5", ".json")
# The length passed to a builder that takes one; no other dimension is likely to have it.
_PROBED_LENGTH = 137
_TIMEOUT_S = 600.0

_LENGTH = "sequence_length"
_BATCH_OPTIONS = ("--batch-size", "--batch_size", "--batchsize", "--batch", "--bs", "-b")
# Other spellings, such as --train_batch_size, except batch sizes that are not used for training.
_BATCH_WORDS = re.compile(r"batch.*(size|sz)", re.IGNORECASE)
_NOT_TRAINING = re.compile(r"eval|val|test|pred|infer|accum", re.IGNORECASE)
_LENGTH_OPTIONS = (
    "--sequence-length", "--sequence_length", "--seq-length", "--seq_length", "--seq-len", "--seq_len", "--seqlen",
    "--max-length", "--max_length", "--max-len", "--max_len", "--maxlen", "--max-seq-length", "--max_seq_length",
)  # fmt: skip

_SPARSE = "sparsecategoricalcrossentropy"

_STARTER_SECTIONS = """\
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


@dataclass(frozen=True, slots=True, kw_only=True)
class StarterSpec:
    """The text of a starter spec."""

    text: str
    unset: tuple[str, ...] = ()
    """Arguments that the script requires and the user has to fill in before probing."""


def write_starter_spec(path: Path, source: str | None, *, force: bool, allow_code: bool) -> StarterSpec:
    """Write a starter spec for `source`: a saved model, `module:function`, a script, or None for a small example."""
    if is_there(path) and not force:
        raise UsageProblem(f"{path} already exists and was not changed", hint="give another name, or --force")
    spec = _starter_spec(path, source, allow_code)
    write_whole(path, spec.text, hint="give another name")
    return spec


def _starter_spec(path: Path, source: str | None, allow_code: bool) -> StarterSpec:
    if allow_code and not (source or "").endswith(_MODEL_FILES):
        raise UsageProblem("--allow-code only applies to a saved model", hint="leave it out")
    if source is None:
        return StarterSpec(text=example_spec(str(path)))
    if source.endswith(".py"):
        return _spec_for_script(path, source)
    is_builder = ":" in source
    if (not is_builder and not source.endswith(_MODEL_FILES)) or "" in source.split(":"):
        raise UsageProblem(
            f"{source}: expected a .keras file, module:function, a .py script, or nothing",
            hint="see: oomtune init --help",
        )
    if is_builder:
        order = InspectOrder(model=Builder(function=source), folder=_folder(path), sequence_length=_PROBED_LENGTH)
        return StarterSpec(text=spec_from_model(str(path), "builder", source, _inspect(order)))
    if not is_file(Path(source)):
        raise UsageProblem(f"no such file: {source}")
    file = _relative_to_spec(path, source)
    order = InspectOrder(model=KerasFile(path=file, allow_code=allow_code), folder=_folder(path))
    return StarterSpec(text=spec_from_model(str(path), "keras_file", file, _inspect(order), allow_code=allow_code))


def _spec_for_script(path: Path, source: str) -> StarterSpec:
    try:
        code = Path(source).read_text(encoding="utf-8")
        spec = spec_from_script(str(path), _relative_to_spec(path, source), code)
    except (OSError, UnicodeDecodeError, SyntaxError) as error:
        raise UsageProblem(f"{source} can't be read: {error}") from None
    if spec is None:
        raise UsageProblem(
            f"{source} has no option for its batch size", hint="add one, such as --batch-size, and try again"
        )
    return spec


def _inspect(order: InspectOrder) -> Inspection:
    host = WorkerHost("spawn", {"CUDA_VISIBLE_DEVICES": "-1"})
    try:
        return host.ask("inspect", order, Inspection, timeout_s=_TIMEOUT_S)
    finally:
        host.close()


def _folder(path: Path) -> str:
    return str(path.resolve().parent)


def _relative_to_spec(path: Path, source: str) -> str:
    return os.path.relpath(Path(source).resolve(), path.resolve().parent)


def example_spec(name: str) -> str:
    """Return a spec for a small LSTM on random data."""
    return _spec(name, _STARTER_SECTIONS, lengths=_LENGTHS)


def spec_from_model(name: str, key: str, source: str, model: Inspection, *, allow_code: bool = False) -> str:
    """Return a spec for an inspected model; `key` is `keras_file` or `builder`."""
    lines = [
        "model:",
        f"  {key}: {_flow(source)}",
        *(["  allow_code: true"] if allow_code else []),
        "",
        "dataset:                      # or npz, npy, csv, jsonl, text, tfrecord, images, python, tfds: your own data",
        "  synthetic:                  # random samples with the shapes of the model",
        *_tensors("inputs", model.inputs),
        *_tensors("targets", {output: _target(model, output) for output in model.outputs}),
        "",
    ]
    if model.compiled:
        lines += ["# The model is already compiled; a training section with optimizer and loss would replace that.", ""]
    else:
        lines += ["training:", "  optimizer: adam", *_loss_lines(model), ""]
    varies = any(_LENGTH in tensor.shape for tensor in (*model.inputs.values(), *model.outputs.values()))
    only_size = f"{model.batch_size!s:<16}# the model takes no other"
    return _spec(
        name,
        "\n".join(lines),
        lengths=(model.lengths or _LENGTHS) if varies else (),
        batch_size=_BATCH_SIZES if model.batch_size is None else only_size,
    )


def spec_from_script(name: str, path: str, code: str) -> StarterSpec | None:
    """Return a spec for a training script, or None if the script has no option that sets its batch size."""
    options = options_of(code)
    batch = _first_known(options, _BATCH_OPTIONS) or _shortest_batch_option(options)
    length = _first_known(options, _LENGTH_OPTIONS)
    if batch is None:
        return None
    arguments = [batch, "{batch_size}"] + ([length, "{sequence_length}"] if length else [])
    required = [option for option in options if option.required and not {batch, length} & set(option.names)]
    for option in sorted(required, key=lambda option: option.is_positional):
        value = option.choice or f"SET_{option.name.strip('-').replace('-', '_').upper()}"
        if option.takes_several and not option.is_positional:
            arguments = [option.name, value, *arguments]  # first, or it would swallow the positional arguments
        else:
            arguments += [value] if option.is_positional else [option.name, value]
    unset = tuple(option.name for option in required if option.choice is None)
    lines = ["model:", "  script:", f"    path: {_flow(path)}"]
    if unset:
        lines.append(f"    # The script requires {', '.join(unset)}: fill in the SET_ values first.")
    if subcommands := subcommands_of(code):
        lines.append(
            f"    # The script has subcommands ({', '.join(subcommands)}): put the one that trains first in args."
        )
    lines.append(f"    args: {_flow(arguments)}")
    if (fits := fits_of_one_model(code)) > 1:
        lines.append(f"    # fits: {fits}                 # the script calls fit in {fits} places: measure all of them")
    return StarterSpec(text=_spec(name, "\n".join([*lines, ""]), lengths=_LENGTHS if length else ()), unset=unset)


def _shortest_batch_option(options: Iterable[Option]) -> str | None:
    names = [name for option in options for name in option.names if name.startswith("--")]
    matches = [name for name in names if _BATCH_WORDS.search(name) and not _NOT_TRAINING.search(name)]
    return min(matches, key=len, default=None)


def _first_known(options: Iterable[Option], candidates: Iterable[str]) -> str | None:
    names = {name for option in options for name in option.names}
    return next((name for name in candidates if name in names), None)


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
    entries = [f"shape: {_flow(list(tensor.shape))}", f"dtype: {tensor.dtype}"]
    if tensor.max is not None:
        entries.append(f"max: {int(tensor.max)}")
    return "{" + ", ".join(entries) + "}"


def _target(model: Inspection, output: str) -> TensorSpec:
    """Return what the loss compares an output with: class numbers for a distribution, else values like the output."""
    tensor = model.outputs[output]
    loss = model.losses.get(output) if model.compiled else _loss(model, output).replace("_", "")
    if loss == _SPARSE and tensor.shape and isinstance(tensor.shape[-1], int):
        return TensorSpec(shape=tensor.shape[:-1], dtype="int32", max=float(tensor.shape[-1]))
    return TensorSpec(shape=tensor.shape, dtype="float32")


def _loss_lines(model: Inspection) -> list[str]:
    """Return one loss if it suits all outputs, otherwise one per output."""
    losses = {output: _loss(model, output) for output in model.outputs}
    if len(set(losses.values())) == 1:
        return [f"  loss: {next(iter(losses.values()))}  # guessed from the last activation: change it if it is wrong"]
    return [
        "  loss:                       # guessed from the last activation of each output: change what is wrong",
        *(f"    {_flow(output)}: {loss}" for output, loss in losses.items()),
    ]


def _loss(model: Inspection, output: str) -> str:
    shape, activation = model.outputs[output].shape, model.activations.get(output)
    if activation == "softmax" and shape and isinstance(shape[-1], int):
        return "sparse_categorical_crossentropy"
    return "binary_crossentropy" if activation == "sigmoid" else "mean_squared_error"


def _flow(value: Any) -> str:
    """Return a value as one line of YAML: plain words where safe, otherwise quoted as JSON, which YAML also reads."""
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    plain = isinstance(value, str) and value.replace("_", "").replace(".", "").replace(":", "").isalnum()
    safe = plain and not value[0].isdigit() and not value.endswith(":") and value.lower() not in _YAML_WORDS
    return value if safe else json.dumps(value)


_YAML_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
