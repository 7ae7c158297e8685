"""The `model` section: its schema, its conversion, and the checks of names and files, without importing Keras."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag, model_validator

from oomtune import domain
from oomtune.spec.fields import InModule, Mistake, Section, nearest, shape_of
from oomtune.spec.files import is_file
from oomtune.spec.yaml_text import KeyPath

_IN_MODULE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_SOURCES = ("layers", "builder", "keras_file", "application", "train_step", "script")
_Layer = Annotated[
    Annotated[str, Tag("<text>")]
    | Annotated[dict[str, dict[str, Any] | None], Field(min_length=1, max_length=1), Tag("<mapping>")],
    Discriminator(
        shape_of,
        custom_error_type="layer",
        custom_error_message="expected a layer such as 'Dense: {units: 2}'",
    ),
]


class Application(Section):
    """A model of `keras.applications`."""

    name: str
    args: dict[str, Any] = Field({}, description="its arguments; no weights are downloaded")


class Script(Section):
    """A training script, run unchanged until it has trained the trial's steps."""

    path: str = Field(pattern=r"\.py$")
    args: list[str | int | float] = Field([], description="{batch_size}, {sequence_length}, {precision} are filled in")
    fits: Annotated[int, Field(ge=1, le=16)] = Field(
        1, description="how many calls of Model.fit are measured, each for the trial's steps"
    )


class Model(Section):
    """The model: exactly one of `layers`, `builder`, `keras_file`, `application`, `train_step` and `script`."""

    layers: Annotated[list[_Layer], Field(min_length=1)] | None = Field(
        None,
        description="Keras layers, or package.module:Class, in order; `inbound` names the layers before a layer",
    )
    builder: InModule | None = Field(None, description="package.module:function, found from the spec")
    args: dict[str, Any] = Field({}, description="arguments for the builder or the train_step factory")
    keras_file: str | None = Field(
        None, pattern=r"\.(keras|h5|hdf5|json)$", description="a .keras or .h5 file, or the JSON of Model.to_json"
    )
    allow_code: bool = Field(False, description="whether keras_file may hold code: Lambda layers or your own classes")
    application: Application | None = None
    train_step: InModule | None = Field(
        None,
        description="package.module:factory; it returns a function that runs one step, or a pair of that and a "
        "function that validates",
    )
    script: Script | None = None

    @property
    def trains_itself(self) -> bool:
        return self.train_step is not None or self.script is not None

    @model_validator(mode="after")
    def _exactly_one(self) -> Model:
        if sum(getattr(self, source) is not None for source in _SOURCES) != 1:
            raise ValueError(f"expected exactly one of {', '.join(_SOURCES[:-1])} and {_SOURCES[-1]}")
        if self.builder is None and self.train_step is None and self.args:
            raise ValueError("args are for a builder or a train_step; the others take their own arguments")
        if self.keras_file is None and self.allow_code:
            raise ValueError("allow_code is for a keras_file")
        return self


def model_spec(model: Model) -> domain.ModelSpec:
    """Convert the one source that the section names."""
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


def _layer(entry: str | dict[str, dict[str, Any] | None]) -> domain.ClassConfig:
    name, config = (entry, None) if isinstance(entry, str) else next(iter(entry.items()))
    return domain.ClassConfig(class_name=name, config=config or {})


def named_modules(model: Any) -> Iterator[str]:
    """Yield the module of every `package.module:name` among these plain values."""
    if isinstance(model, str) and _IN_MODULE.fullmatch(model):
        yield model.partition(":")[0]
    elif isinstance(model, dict):
        for key, entry in model.items():
            yield from named_modules(key)
            yield from named_modules(entry)
    elif isinstance(model, list):
        for entry in model:
            yield from named_modules(entry)


def check_model(model: Any, folder: Path) -> Iterator[Mistake]:
    """Yield the mistakes that types can't show: unknown names, wrong links and missing files."""
    if not isinstance(model, dict):
        return
    layers = model.get("layers")
    if isinstance(layers, list):
        yield from _check_layers(layers)
    script = model.get("script")
    script_path = script.get("path") if isinstance(script, dict) else None
    files: list[tuple[KeyPath, Any]] = [
        (("model", "keras_file"), model.get("keras_file")),
        (("model", "script", "path"), script_path),
    ]
    for path, file in files:
        if isinstance(file, str) and not is_file(folder / file):
            yield path, f"no such file: {folder / file}"
    if isinstance(model.get("application"), dict):
        yield from _check_application(model["application"], folder)


def _check_application(application: dict[str, Any], folder: Path) -> Iterator[Mistake]:
    name, models = application.get("name"), application_names()
    if isinstance(name, str) and models and name not in models:
        yield ("model", "application", "name"), f"keras.applications has no {name!r}{nearest(name, models)}"
    args = application.get("args")
    weights = args.get("weights") if isinstance(args, dict) else None
    if isinstance(weights, str) and not is_file(folder / weights):
        message = f"no such file: {folder / weights}; nothing is downloaded, and weights change no memory: use null"
        yield ("model", "application", "args", "weights"), message


def _check_layers(layers: list[Any]) -> Iterator[Mistake]:
    earlier: set[str] = set()
    inputs = [entry for entry in layers if isinstance(entry, dict) and {"Input", "InputLayer"} & entry.keys()]
    is_graph = len(inputs) > 1 or any("inbound" in config for config in map(_config, layers))
    if is_graph and layers and layers[0] not in inputs:
        yield ("model", "layers", 0), "expected an Input: a graph, with `inbound` or several inputs, starts with one"
    for index, entry in enumerate(layers):
        path: KeyPath = ("model", "layers", index)
        yield from _check_names(entry, path)
        config = _config(entry)
        inbound = config.get("inbound", [])
        for name in [inbound] if isinstance(inbound, str) else inbound if isinstance(inbound, list) else [None]:
            if not isinstance(name, str):
                yield path, "expected inbound to be the name of an earlier layer, or a list of names"
            elif name not in earlier:
                yield path, f"inbound: no earlier layer is named {name!r}{nearest(name, earlier)}"
        name = config.get("name")
        if isinstance(name, str):
            if name in earlier:
                yield path, f"two layers are named {name!r}"
            earlier.add(name)


def _config(entry: Any) -> dict[str, Any]:
    """Return the arguments of a layer, empty if it has none or is not written as a layer."""
    config = next(iter(entry.values()), None) if isinstance(entry, dict) else None
    return config if isinstance(config, dict) else {}


def _check_names(entry: Any, path: KeyPath) -> Iterator[Mistake]:
    """Yield the class names, of this layer and the layers inside it, that Keras lacks."""
    keras_layers = layer_names()
    names = [entry] if isinstance(entry, str) else list(entry) if isinstance(entry, dict) else []
    for name in names:
        if keras_layers and isinstance(name, str) and name not in keras_layers and not _IN_MODULE.fullmatch(name):
            yield path, f"Keras has no layer {name!r}{nearest(name, keras_layers)}"
        config = entry.get(name) if isinstance(entry, dict) else None
        for key in domain.LAYERS_INSIDE:
            inner = config.get(key) if isinstance(config, dict) else None
            for one in inner if isinstance(inner, list) else [inner]:
                if one is not None and not isinstance(one, str) and not (isinstance(one, dict) and len(one) == 1):
                    yield path, f"expected {key} to be a layer such as 'LSTM: {{units: 2}}'"
                else:
                    yield from _check_names(one, path)


def layer_names() -> frozenset[str]:
    """Return every name in `keras.layers` of the installed Keras; empty if its source can't be read."""
    return _names_in("layers")


def application_names() -> frozenset[str]:
    """Return every model in `keras.applications`. Lower-case names there are modules."""
    return frozenset(name for name in _names_in("applications") if name[0].isupper())


@cache
def _names_in(package: str) -> frozenset[str]:
    # Read from Keras' source: importing Keras would import TensorFlow.
    try:
        keras = importlib.util.find_spec("keras")
    except (ImportError, ValueError):
        keras = None
    if keras is None or keras.origin is None:
        return frozenset()
    source = Path(keras.origin).parent / package / "__init__.py"
    if not source.is_file():
        return frozenset()
    imports = [node for node in ast.parse(source.read_text(encoding="utf-8")).body if isinstance(node, ast.ImportFrom)]
    return frozenset(alias.asname or alias.name for node in imports for alias in node.names)
