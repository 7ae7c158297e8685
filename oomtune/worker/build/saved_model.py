"""Rebuild a model from a .keras, .h5 or .json file for a candidate, without reading weights or running its code."""

from __future__ import annotations

import ast
import contextlib
import json
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import h5py
import keras

from oomtune.domain import Candidate, KerasFile
from oomtune.errors import TrialCrashed
from oomtune.keras.compiling import deserialise
from oomtune.keras.private_keras import saving_lib
from oomtune.spec.files import modules_in
from oomtune.spec.saved_config import SHAPES, UNREADABLE, input_layers, read_config
from oomtune.worker.build import user_code
from oomtune.worker.build.compiling import LOSSES_BY_SHAPE, METRICS_BY_SHAPE
from oomtune.worker.build.layers import first_line

_KEY = "model.keras_file"
_POLICIES = ("DTypePolicy", "Policy")
# The keys of the compile settings, in .keras and .json files and in HDF5 files.
_COMPILE_CONFIG, _HDF5_TRAINING = "compile_config", "training_config"
# The classes of models, which HDF5 files name without their module.
_HDF5_MODELS = {"Functional": "Model", "Model": "Model", "Sequential": "Sequential"}
_KERAS_MODULES = (
    keras, keras.layers, keras.initializers, keras.regularizers, keras.constraints, keras.optimizers,
    keras.optimizers.schedules, keras.losses, keras.metrics, keras.dtype_policies,
    keras.activations,
)  # fmt: skip
_LOOKUP_LAYERS = ("TextVectorization", "StringLookup", "IntegerLookup")
_ASSETS, _VOCABULARY = "assets/", "/vocabulary.txt"
_SAVE_HINT = "save it with model.save('model.keras')"


def build(
    file: KerasFile,
    folder: str,
    candidate: Candidate,
    *,
    sequences: frozenset[str] | None = None,
    compiled_anew: bool = False,
) -> keras.Model:
    """Return the model of the file under the candidate's precision and length.

    `sequences` names the inputs that take the candidate's length, None if that is unknown. With `compiled_anew` the
    file's own loss, optimizer and metrics are left out.
    """
    path = Path(folder, file.path)
    config = _read(path)
    if compiled_anew:
        config.pop(_COMPILE_CONFIG, None)
        config.pop(_HDF5_TRAINING, None)
    has_vocabulary = _has_learnt_vocabulary(config, path)
    if not file.allow_code:
        _refuse_code(config, path)
    custom_objects = _custom_objects(config, folder) if file.allow_code else {}
    training = config.pop(_HDF5_TRAINING, None)
    _set_precision(config, candidate.precision)
    saved_length = None
    if candidate.sequence_length is not None:
        saved_length = _set_length(config, candidate.sequence_length, sequences)
    try:
        model = keras.saving.deserialize_keras_object(
            config, custom_objects=custom_objects, safe_mode=not file.allow_code
        )
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        if saved_length:
            raise TrialCrashed(
                f"{_KEY}: {path.name} was saved with {saved_length} steps per sample and can't be rebuilt with "
                f"{candidate.sequence_length}: {_reason(error)}",
                hint=f"save it with an input length of None, or set search.sequence_length: {saved_length}",
            ) from None
        raise TrialCrashed(
            f"{_KEY}: {path.name} can't be rebuilt: {_reason(error)}", hint="use a builder that makes the model"
        ) from None
    if not isinstance(model, keras.Model):
        raise TrialCrashed(f"{_KEY}: {path.name} holds a {type(model).__name__}, not a model", hint=_SAVE_HINT)
    if has_vocabulary:
        _load_vocabularies(model, path)
    if training is not None:
        with keras.saving.CustomObjectScope(custom_objects):
            _compile_from_hdf5(model, training)
    return model


def _reason(error: Exception) -> str:
    """Return the reason from Keras' message, which describes the object at length first."""
    text = str(error).rpartition("Exception encountered:")[2].strip()
    return first_line(ValueError(text)) if text else first_line(error)


def _read(path: Path) -> dict[str, Any]:
    try:
        config = read_config(path) if path.suffix in (".keras", ".json") else _read_hdf5(path)
    except UNREADABLE as error:
        raise TrialCrashed(f"{_KEY}: {path} can't be read: {first_line(error)}", hint=_SAVE_HINT) from None
    if not isinstance(config, dict) or not {"class_name", "config"} <= config.keys():
        raise TrialCrashed(f"{_KEY}: {path} holds no model", hint=_SAVE_HINT)
    return config


def _objects(config: Any) -> Iterator[dict[str, Any]]:
    """Yield every serialised object in a configuration, the outermost first."""
    if isinstance(config, dict):
        if "class_name" in config:
            yield config
        for entry in config.values():
            yield from _objects(entry)
    elif isinstance(config, list):
        for entry in config:
            yield from _objects(entry)


# --- the user's own code and classes


def _refuse_code(config: dict[str, Any], path: Path) -> None:
    for serialised in _objects(config):
        class_name = serialised["class_name"]
        if class_name in ("Lambda", "__lambda__"):
            content = "a Lambda layer, whose code is not run"
        elif (
            _custom_module(serialised)
            or _has_unknown_origin(serialised)
            or (serialised.get("registered_name") or class_name) != class_name
        ):
            kind = "function" if class_name == "function" else "class"
            content = f"the {kind} {_name(serialised)!r}, which is not part of Keras"
        else:
            continue
        raise TrialCrashed(
            f"{_KEY}: {path.name} contains {content}",
            hint="set model.allow_code: true (oomtune init --allow-code) if you trust the file, or use a builder",
        )


def _custom_module(serialised: dict[str, Any]) -> str | None:
    """Return the module of a class that is not part of Keras."""
    module = serialised.get("module")
    if not isinstance(module, str) or module == "builtins" or module.partition(".")[0] == "keras":
        return None
    return module


def _name(serialised: dict[str, Any]) -> str:
    """Return the name without its package. A function's configuration is its name."""
    name = serialised.get("config") if serialised["class_name"] == "function" else serialised["class_name"]
    return str(name).rpartition(">")[2]


def _has_unknown_origin(serialised: dict[str, Any]) -> bool:
    """Return whether this is the user's own class or function, and the file does not name its module."""
    is_own_function = serialised["class_name"] == "function" and serialised.get("module") == "builtins"
    has_no_module = "module" not in serialised or is_own_function
    return has_no_module and not serialised["class_name"].startswith("__") and not _is_keras_class(_name(serialised))


def _custom_objects(config: dict[str, Any], folder: str) -> dict[str, Any]:
    """Import the user's own classes and functions that the file names."""
    objects: dict[str, Any] = {}
    for serialised in _objects(config):
        name = _name(serialised)
        module = _find_module(name, folder) if _has_unknown_origin(serialised) else _custom_module(serialised)
        custom = None if module is None else getattr(user_code.load_module(module, folder, _KEY), name, None)
        if custom is not None:
            is_function = serialised["class_name"] == "function"
            registered = serialised["config"] if is_function else serialised.get("registered_name")
            objects |= dict.fromkeys((registered or serialised["class_name"], name), custom)
    return objects


def _find_module(name: str, folder: str) -> str | None:
    """Return the module beside the spec, or in the current folder, that defines a class or function of this name."""
    for place in (Path(folder), Path.cwd()):
        for module in sorted(set(modules_in(place))):
            try:
                statements = ast.parse(module.read_bytes()).body
            except (OSError, SyntaxError, ValueError):
                continue
            if any(isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name for node in statements):
                return ".".join(module.relative_to(place).with_suffix("").parts).removesuffix(".__init__")
    return None


# --- precision and length


def _set_precision(config: dict[str, Any], precision: str) -> None:
    """Change every layer under the file's main policy. Layers with another policy, such as outputs, keep theirs."""
    layers = [layer["config"] for layer in _layers(config) if _policy(layer["config"].get("dtype")) is not None]
    if not layers:
        return
    (main, _), *_ = Counter(_policy(layer["dtype"]) for layer in layers).most_common(1)
    for layer in layers:
        if _policy(layer["dtype"]) == main:
            layer["dtype"] = {"module": "keras", "class_name": "DTypePolicy", "config": {"name": precision}}
            layer["dtype"]["registered_name"] = None


def _policy(dtype: Any) -> str | None:
    """Return the name of a floating-point policy, None for anything else."""
    if isinstance(dtype, dict):
        dtype = dtype.get("config", {}).get("name") if dtype.get("class_name") in _POLICIES else None
    return dtype if isinstance(dtype, str) and "float" in dtype else None


def _layers(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the layers of a model and of the models inside it. Skip the compile settings."""
    compiled = (_COMPILE_CONFIG, _HDF5_TRAINING)
    for serialised in _objects({key: entry for key, entry in config.items() if key not in compiled}):
        class_name = serialised["class_name"]
        # Keras serialises tensors and arrays under names such as `__keras_tensor__`.
        is_layer = class_name not in ("InputLayer", *_POLICIES) and not class_name.startswith("__")
        if is_layer and isinstance(serialised.get("config"), dict):
            yield serialised


def _set_length(config: dict[str, Any], length: int, sequences: frozenset[str] | None) -> int | None:
    """Change the fixed length of sequence inputs. Return the length in the file, None if nothing was changed."""
    inputs = {name: shape for name, shape in _input_shapes(config) if len(shape) > 1}
    names = None if sequences is None else _names_for_positions(sequences, config)
    if names is None or "" in names:
        # If one input has an open length, that input is the sequence and the sizes of the others are not lengths.
        varying = {} if any(shape[1] is None for shape in inputs.values()) else inputs
    else:
        varying = {name: shape for name, shape in inputs.items() if name in names}
    fixed = next((shape[1] for shape in varying.values() if shape[1] is not None), None)
    if fixed is None or fixed == length:
        return None
    other_inputs = [shape for name, shape in inputs.items() if name not in varying]
    for shape in _all_input_shapes(config):
        if len(shape) > 1 and shape[1] == fixed and all(shape is not other for other in other_inputs):
            shape[1] = length
    for serialised in list(_objects(config)):  # forget the shapes that layers were built for
        serialised.pop("build_config", None)
        if isinstance(serialised.get("config"), dict):
            serialised["config"].pop("build_input_shape", None)
    return int(fixed)


def _names_for_positions(sequences: frozenset[str], config: dict[str, Any]) -> frozenset[str]:
    """Replace positions in a tuple of inputs, such as `0`, with the names of the inputs."""
    listed = config["config"].get("input_layers") if isinstance(config["config"], dict) else None
    names = [str(entry[0]) for entry in listed or [] if isinstance(entry, list) and entry]
    return frozenset(names[int(one)] if one.isdigit() and int(one) < len(names) else one for one in sequences)


def _input_shapes(config: dict[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    """Yield name and shape of the model's own inputs that are not text."""
    for key, inner in input_layers(config):
        if inner.get("dtype") != "string":
            yield str(inner.get("name", "")), inner[key]


def _all_input_shapes(config: dict[str, Any]) -> Iterator[list[Any]]:
    """Yield the shapes of the model's inputs, and of the inputs of models inside it."""
    for serialised in _objects(config):
        inner = serialised.get("config")
        for key in SHAPES:
            if isinstance(inner, dict) and isinstance(inner.get(key), list):
                yield inner[key]


# --- HDF5, the older format
# Keras' own loader also reads all weights, and older releases ignore `safe_mode` and run code from the file.


def _read_hdf5(path: Path) -> Any:
    """Return the model's configuration, with its compile settings if it has any. Raise `KeyError` without a model."""
    with h5py.File(path, "r") as file:
        if "model_config" not in file.attrs:
            raise KeyError("no model_config: it may contain only weights")
        config = json.loads(file.attrs["model_config"])
        if isinstance(config, dict) and _HDF5_TRAINING in file.attrs:
            training = json.loads(file.attrs[_HDF5_TRAINING])
            keys = ("loss", "metrics", "weighted_metrics")
            config[_HDF5_TRAINING] = training | {key: _mark_own_functions(training.get(key)) for key in keys}
    if isinstance(config, dict) and config.get("class_name") in _HDF5_MODELS:
        config |= {"module": "keras", "class_name": _HDF5_MODELS[config["class_name"]], "registered_name": None}
    return config


def _mark_own_functions(entry: Any) -> Any:
    """Serialise the user's own losses and metrics as functions. The format only has their names."""
    if isinstance(entry, str) and entry.lower() not in METRICS_BY_SHAPE + LOSSES_BY_SHAPE and not _is_keras_name(entry):
        return {"module": "builtins", "class_name": "function", "config": entry, "registered_name": entry}
    if isinstance(entry, dict) and "class_name" not in entry:
        return {name: _mark_own_functions(inner) for name, inner in entry.items()}
    return [_mark_own_functions(inner) for inner in entry] if isinstance(entry, list) else entry


def _is_keras_name(name: str) -> bool:
    """Return whether Keras has a loss or metric of this name, short names included."""
    for get in (keras.losses.get, keras.metrics.get):
        with contextlib.suppress(ValueError):
            get(name)
            return True
    return False


def _is_keras_class(name: str) -> bool:
    return name in ("Functional", "Policy") or any(hasattr(module, name) for module in _KERAS_MODULES)


def _compile_from_hdf5(model: keras.Model, training: dict[str, Any]) -> None:
    """Compile the model with its saved settings. Leave it uncompiled if this Keras can't read them."""
    try:
        arguments = {
            "optimizer": keras.optimizers.get(training["optimizer_config"]),
            "loss": deserialise(keras.losses.get, training.get("loss")),
            "loss_weights": training.get("loss_weights"),
            "metrics": deserialise(keras.metrics.get, training.get("metrics")),
            "weighted_metrics": deserialise(keras.metrics.get, training.get("weighted_metrics")),
        }
    except (KeyError, TypeError, ValueError):
        return
    model.compile(**arguments)


# --- vocabularies that layers learnt from data: in the file, but not in the configuration


def _has_learnt_vocabulary(config: dict[str, Any], path: Path) -> bool:
    """Return whether a layer learnt its vocabulary. Raise `TrialCrashed` if the file does not contain it."""
    layers = [one for one in _objects(config) if one["class_name"] in _LOOKUP_LAYERS]
    adapted = [one for one in layers if isinstance(one.get("config"), dict) and one["config"].get("vocabulary") is None]
    for layer in adapted:
        message = (
            f"{_KEY}: {path.name} has the layer {layer['config'].get('name')!r} ({layer['class_name']}), whose "
            "vocabulary was learnt from data"
        )
        if layer["config"].get("output_mode") == "tf_idf":
            raise TrialCrashed(
                f"{message} and weighs words by their frequency", hint="use a builder that gives it its vocabulary"
            )
        if not _vocabulary_files(path):
            raise TrialCrashed(
                f"{message} and is not in the file",
                hint=f"{_SAVE_HINT}, or use a builder that gives the layer its vocabulary",
            )
    return bool(adapted)


def _load_vocabularies(model: keras.Model, path: Path) -> None:
    """Fill the model's lookup tables from the file, as Keras does on loading, but read no weights."""
    with TemporaryDirectory() as folder:
        try:
            with zipfile.ZipFile(path) as archive:
                archive.extractall(folder, _vocabulary_files(path))  # never writes outside the folder
            store = saving_lib.DiskIOStore(str(Path(folder, _ASSETS)), mode="r")
            saving_lib._load_state(model, None, store, inner_path="", visited_saveables=set())
        except (TypeError, *UNREADABLE) as error:
            raise TrialCrashed(
                f"{_KEY}: {path.name} has a vocabulary that can't be read: {error}",
                hint="save it again with model.save('model.keras')",
            ) from None


def _vocabulary_files(path: Path) -> list[str]:
    if path.suffix != ".keras":
        return []
    with zipfile.ZipFile(path) as archive:
        return [name for name in archive.namelist() if name.startswith(_ASSETS) and name.endswith(_VOCABULARY)]
