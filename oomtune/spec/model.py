"""What a spec's `model` names, as types, and what can be wrong with it although its types are right; without Keras."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oomtune import domain
from oomtune.spec.files import is_file
from oomtune.spec.keras_names import application_names, layer_names
from oomtune.spec.model_schema import Model
from oomtune.spec.saved_model import UNREADABLE, read_config, takes_only_text
from oomtune.spec.sections import nearest
from oomtune.spec.text import Path_

_IN_A_MODULE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")

_KERAS_FILE: Path_ = ("model", "keras_file")
_SCRIPT_PATH: Path_ = ("model", "script", "path")

Wrong = tuple[Path_, str]


def model_spec(model: Model) -> domain.ModelSpec:
    """Return the one source that the section names."""
    if model.layers is not None:
        return domain.Layers(layers=tuple(map(_layer, model.layers)))
    if model.builder is not None:
        return domain.Builder(function=model.builder, args=model.args)
    if model.keras_file is not None:
        return domain.KerasFile(path=model.keras_file, allow_code=model.allow_code)
    if model.application is not None:
        return domain.Application(name=model.application.name, args=model.application.args)
    if model.train_step is not None:
        return domain.TrainStep(factory=model.train_step, args=model.args)
    assert model.script is not None, "the schema lets no other model through"
    script = model.script
    return domain.Script(path=script.path, args=tuple(map(str, script.args)), fits=script.fits)


def _layer(entry: str | dict[str, Any]) -> domain.ClassConfig:
    name, config = (entry, None) if isinstance(entry, str) else next(iter(entry.items()))
    return domain.ClassConfig(class_name=name, config=config or {})


def wrong_in_model(model: Any, folder: Path) -> Iterator[Wrong]:
    if not isinstance(model, dict):
        return
    layers = model.get("layers")
    if isinstance(layers, list):
        yield from _wrong_in_layers(layers)
    script = model.get("script")
    script_path = script.get("path") if isinstance(script, dict) else None
    for path, file in ((_KERAS_FILE, model.get("keras_file")), (_SCRIPT_PATH, script_path)):
        if isinstance(file, str) and not is_file(folder / file):
            yield path, f"no such file: {folder / file}"
    if isinstance(model.get("application"), dict):
        yield from _wrong_in_application(model["application"], folder)


def is_text_to_tokens(file: Any, folder: Path) -> bool:
    """Is it a saved model that takes text and nothing else? Of one that can't be read here its first trial tells."""
    try:
        return isinstance(file, str) and takes_only_text(read_config(folder / file))
    except UNREADABLE:
        return False


def named_modules(model: Any) -> Iterator[str]:
    """The modules of every `package.module:name` in a model: of its builder, and of layers of the user's own."""
    if isinstance(model, str) and _IN_A_MODULE.fullmatch(model):
        yield model.partition(":")[0]
    elif isinstance(model, dict):
        for key, entry in model.items():
            yield from named_modules(key)
            yield from named_modules(entry)
    elif isinstance(model, list):
        for entry in model:
            yield from named_modules(entry)


def _wrong_in_application(application: dict[str, Any], folder: Path) -> Iterator[Wrong]:
    name, known = application.get("name"), application_names()
    if isinstance(name, str) and known and name not in known:
        yield ("model", "application", "name"), f"keras.applications has no {name!r}{nearest(name, known)}"
    args = application.get("args")
    weights = args.get("weights") if isinstance(args, dict) else None
    if isinstance(weights, str) and not is_file(folder / weights):
        message = f"nothing is downloaded, and no such file: {folder / weights}; weights change no memory: use null"
        yield ("model", "application", "args", "weights"), message


def _wrong_in_layers(layers: list[Any]) -> Iterator[Wrong]:
    """Names that Keras does not have, and branches that come after nothing."""
    earlier: set[str] = set()
    inputs = [entry for entry in layers if isinstance(entry, dict) and {"Input", "InputLayer"} & entry.keys()]
    is_graph = len(inputs) > 1 or any("inbound" in config for config in map(_config, layers))
    if is_graph and layers and layers[0] not in inputs:
        yield ("model", "layers", 0), "expected an Input: a graph, with `inbound` or several inputs, begins with one"
    for index, entry in enumerate(layers):
        path: Path_ = ("model", "layers", index)
        yield from _wrong_names(entry, path)
        config = _config(entry)
        inbound = config.get("inbound", [])
        for name in [inbound] if isinstance(inbound, str) else inbound if isinstance(inbound, list) else [None]:
            if not isinstance(name, str):
                yield path, "expected inbound to be the name of an earlier layer, or a list of names"
            elif name not in earlier:
                yield path, f"inbound: no earlier layer is called {name!r}{nearest(name, earlier)}"
        name = config.get("name")
        if isinstance(name, str):
            if name in earlier:
                yield path, f"two layers are called {name!r}"
            earlier.add(name)


def _config(entry: Any) -> dict[str, Any]:
    """The arguments of a layer in the list; empty where there are none to read."""
    config = next(iter(entry.values()), None) if isinstance(entry, dict) else None
    return config if isinstance(config, dict) else {}


def _wrong_names(entry: Any, path: Path_) -> Iterator[Wrong]:
    known = layer_names()
    names = [entry] if isinstance(entry, str) else list(entry) if isinstance(entry, dict) else []
    for name in names:
        if known and isinstance(name, str) and name not in known and not _IN_A_MODULE.fullmatch(name):
            yield path, f"Keras has no layer {name!r}{nearest(name, known)}"
        config = entry.get(name) if isinstance(entry, dict) else None
        for key in domain.LAYERS_INSIDE:
            inner = config.get(key) if isinstance(config, dict) else None
            for one in inner if isinstance(inner, list) else [inner]:
                if one is not None and not isinstance(one, str) and not (isinstance(one, dict) and len(one) == 1):
                    yield path, f"expected {key} to be a layer such as 'LSTM: {{units: 2}}'"
                else:
                    yield from _wrong_names(one, path)
