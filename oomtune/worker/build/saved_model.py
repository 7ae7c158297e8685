"""A model from a file that Keras saved, rebuilt for a candidate: its weights are not read, nor is code run from it."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras

from oomtune.domain import KerasFile
from oomtune.errors import TrialCrashed
from oomtune.spec.files import modules_in
from oomtune.spec.saved_config import SHAPES, UNREADABLE, input_layers, read_config
from oomtune.worker.build import hdf5, vocabularies
from oomtune.worker.build import user_code as code
from oomtune.worker.build.blueprint import Blueprint
from oomtune.worker.build.layers import first_words

_KEY = "model.keras_file"
_POLICIES = ("DTypePolicy", "Policy")


def build(file: KerasFile, blueprint: Blueprint) -> keras.Model:
    """The model of the file; of one that is compiled anew, how it was compiled is left aside."""
    folder, candidate = blueprint.folder, blueprint.candidate
    path = Path(folder) / file.path
    config = _read(path)
    if blueprint.compiled_anew:
        config.pop("compile_config", None)
        config.pop(hdf5.TRAINING, None)
    has_learnt = vocabularies.learnt(_objects(config), path, _KEY)
    if not file.allow_code:
        _refuse_code(config, path)
    custom = _custom_objects(config, folder) if file.allow_code else {}
    training = config.pop(hdf5.TRAINING, None)
    _set_precision(config, candidate.precision)
    was_fixed = None
    if candidate.sequence_length is not None:
        was_fixed = _set_length(config, candidate.sequence_length, blueprint.sequences)
    try:
        model = keras.saving.deserialize_keras_object(config, custom_objects=custom, safe_mode=not file.allow_code)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        if was_fixed:
            raise TrialCrashed(
                f"{_KEY}: {path.name} was saved with {was_fixed} steps a sample and can't be rebuilt with "
                f"{candidate.sequence_length}: {_reason(error)}",
                hint=f"save it with an input length of None, or set search.sequence_length: {was_fixed}",
            ) from None
        raise TrialCrashed(
            f"{_KEY}: {path.name} can't be rebuilt: {_reason(error)}", hint="use a builder that makes the model"
        ) from None
    if not isinstance(model, keras.Model):
        raise TrialCrashed(f"{_KEY}: {path.name} holds a {type(model).__name__}, not a model")
    if has_learnt:
        vocabularies.load(model, path, _KEY)
    if training is not None:
        with keras.saving.CustomObjectScope(custom):
            hdf5.compile_as_saved(model, training)
    return model


def _reason(error: Exception) -> str:
    """Keras tells of the object first, at length, and of the reason last."""
    text = str(error).rpartition("Exception encountered:")[2].strip()
    return first_words(ValueError(text)) if text else first_words(error)


def _read(path: Path) -> dict[str, Any]:
    """The configuration in a `.keras` archive, a `.h5` file or the JSON text of `Model.to_json`."""
    try:
        found = read_config(path) if path.suffix in (".keras", ".json") else hdf5.read(path)
    except UNREADABLE as error:
        raise TrialCrashed(
            f"{_KEY}: {path} can't be read: {first_words(error)}", hint="save it with model.save('model.keras')"
        ) from None
    if not isinstance(found, dict) or not {"class_name", "config"} <= found.keys():
        raise TrialCrashed(f"{_KEY}: {path} holds no model", hint="save it with model.save('model.keras')")
    return found


def _objects(config: Any) -> Iterator[dict[str, Any]]:
    """Every serialised object in a configuration, the outermost first."""
    if isinstance(config, dict):
        if "class_name" in config:
            yield config
        for entry in config.values():
            yield from _objects(entry)
    elif isinstance(config, list):
        for entry in config:
            yield from _objects(entry)


def _custom_module(thing: dict[str, Any]) -> str | None:
    """The module of a class that is not part of Keras."""
    module = thing.get("module")
    if not isinstance(module, str) or module == "builtins" or module.partition(".")[0] == "keras":
        return None
    return module


def _name(thing: dict[str, Any]) -> str:
    """What its module calls it. Of functions that is their configuration; a package may stand before it."""
    name = thing.get("config") if thing["class_name"] == "function" else thing["class_name"]
    return str(name).rpartition(">")[2]


def _is_nameless(thing: dict[str, Any]) -> bool:
    """Is it a class or function of the user's own of which the file does not say where it is from?"""
    unplaced = "module" not in thing or (thing["class_name"] == "function" and thing["module"] == "builtins")
    return unplaced and not thing["class_name"].startswith("__") and not hdf5.is_keras_own(_name(thing))


def _refuse_code(config: dict[str, Any], path: Path) -> None:
    for thing in _objects(config):
        name = thing["class_name"]
        if name in ("Lambda", "__lambda__"):
            what = "a Lambda layer, whose code is not run"
        elif _custom_module(thing) or _is_nameless(thing) or (thing.get("registered_name") or name) != name:
            kind = "function" if name == "function" else "class"
            what = f"the {kind} {_name(thing)!r}, which is not part of Keras"
        else:
            continue
        raise TrialCrashed(
            f"{_KEY}: {path.name} holds {what}",
            hint="set model.allow_code: true (oomtune init --allow-code) if you trust the file, or use a builder",
        )


def _custom_objects(config: dict[str, Any], folder: str) -> dict[str, Any]:
    """The classes that the file names in modules of the user's own."""
    found: dict[str, Any] = {}
    for thing in _objects(config):
        module = _module_of(_name(thing), folder) if _is_nameless(thing) else _custom_module(thing)
        if module is not None:
            made = getattr(code.load_module(module, folder, _KEY), _name(thing), None)
            if made is not None:
                known_as = thing["config"] if thing["class_name"] == "function" else thing.get("registered_name")
                found |= dict.fromkeys((known_as or thing["class_name"], _name(thing)), made)
    return found


def _module_of(name: str, folder: str) -> str | None:
    """The module beside the spec, or in the current folder, in which a class or function of this name is written."""
    for place in (Path(folder), Path.cwd()):
        for module in sorted(set(modules_in(place))):
            try:
                written = ast.parse(module.read_bytes()).body
            except (OSError, SyntaxError, ValueError):
                continue
            if any(isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name for node in written):
                return ".".join(module.relative_to(place).with_suffix("").parts).removesuffix(".__init__")
    return None


def _set_precision(config: dict[str, Any], precision: str) -> None:
    """Give every layer under the file's main policy another; one that was kept apart, as outputs are, stays so."""
    layers = [thing["config"] for thing in _layers(config) if _policy(thing["config"].get("dtype")) is not None]
    if not layers:
        return
    (main, _), *_ = Counter(_policy(layer["dtype"]) for layer in layers).most_common(1)
    for layer in layers:
        if _policy(layer["dtype"]) == main:
            layer["dtype"] = {"module": "keras", "class_name": "DTypePolicy", "config": {"name": precision}}
            layer["dtype"]["registered_name"] = None


def _policy(dtype: Any) -> str | None:
    """The name of a floating policy; None when this is something else."""
    if isinstance(dtype, dict):
        dtype = dtype.get("config", {}).get("name") if dtype.get("class_name") in _POLICIES else None
    return dtype if isinstance(dtype, str) and "float" in dtype else None


def _layers(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The layers of a model and of the models in it; how it was compiled is left alone."""
    without_compile = {key: entry for key, entry in config.items() if key not in ("compile_config", hdf5.TRAINING)}
    for thing in _objects(without_compile):
        # What Keras writes for tensors and arrays has names such as `__keras_tensor__`.
        is_layer = thing["class_name"] not in ("InputLayer", *_POLICIES) and not thing["class_name"].startswith("__")
        if is_layer and isinstance(thing.get("config"), dict):
            yield thing


def _set_length(config: dict[str, Any], length: int, sequences: frozenset[str] | None) -> int | None:
    """Give inputs of a fixed length another one, and return what it was; None when the length was left open."""
    inputs = {name: shape for name, shape in _inputs(config) if len(shape) > 1}
    sequences = None if sequences is None else _by_name(sequences, config)
    if sequences is None or "" in sequences:
        # Where one is open it is the sequence, and what others have is no length.
        varying = {} if any(shape[1] is None for shape in inputs.values()) else inputs
    else:
        varying = {name: shape for name, shape in inputs.items() if name in sequences}
    fixed = next((shape[1] for shape in varying.values() if shape[1] is not None), None)
    if fixed is None or fixed == length:
        return None
    kept = [shape for name, shape in inputs.items() if name not in varying]
    for shape in _input_shapes(config):  # also those of the models inside
        if len(shape) > 1 and shape[1] == fixed and all(shape is not other for other in kept):
            shape[1] = length
    for thing in list(_objects(config)):
        thing.pop("build_config", None)  # the shapes that layers were built for
        if isinstance(thing.get("config"), dict):
            thing["config"].pop("build_input_shape", None)
    return int(fixed)


def _by_name(sequences: frozenset[str], config: dict[str, Any]) -> frozenset[str]:
    """The same inputs, where they are called by their places in a tuple, by the names that they have."""
    listed = config["config"].get("input_layers") if isinstance(config["config"], dict) else None
    places = [str(entry[0]) for entry in listed or [] if isinstance(entry, list) and entry]
    return frozenset(places[int(one)] if one.isdigit() and int(one) < len(places) else one for one in sequences)


def _inputs(config: dict[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    """The shapes of the model's own inputs that are no text, by their names."""
    for key, inner in input_layers(config):
        if inner.get("dtype") != "string":
            yield str(inner.get("name", "")), inner[key]


def _input_shapes(config: dict[str, Any]) -> Iterator[list[Any]]:
    for thing in _objects(config):
        inner = thing.get("config")
        for key in SHAPES:
            if isinstance(inner, dict) and isinstance(inner.get(key), list):
                yield inner[key]
