"""The `dataset` section: its schema, its conversion, and the checks of files and tokenizers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Discriminator, Field, Tag, model_validator

from oomtune import domain
from oomtune.spec.fields import InModule, Mistake, Positive, Section, convert, nearest
from oomtune.spec.files import matching_paths
from oomtune.spec.yaml_text import KeyPath

DType = Literal[
    "float32", "float16", "bfloat16", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "bool"
]  # fmt: skip


class Tensor(Section):
    """One tensor of a sample. `sequence_length` in the shape stands for the value under trial."""

    domain_type: ClassVar[type] = domain.TensorSpec
    shape: list[Positive | Literal["sequence_length"]]
    dtype: DType = "float32"
    max: Annotated[float, Field(gt=0)] | None = Field(None, description="values lie below this; required for integers")

    @model_validator(mode="after")
    def _integers_have_a_bound(self) -> Tensor:
        if "int" not in self.dtype:
            return self
        if self.max is None:
            raise ValueError(f"max is missing: how many different values an {self.dtype} may have")
        bits = int(self.dtype.rpartition("int")[2])
        largest = 2 ** (bits if self.dtype.startswith("u") else bits - 1)
        if self.max != int(self.max) or not 1 <= self.max <= largest:
            raise ValueError(
                f"expected max to be a whole number from 1 to {largest} for an {self.dtype}; got {self.max:g}"
            )
        return self


def _tensor_form(value: Any) -> str:
    several = isinstance(value, dict) and value and "shape" not in value
    is_mapping = several and all(isinstance(entry, dict | BaseModel) for entry in value.values())
    return "<named>" if is_mapping else "<tensor>"


Tensors = Annotated[
    Annotated[Tensor, Tag("<tensor>")] | Annotated[dict[str, Tensor], Tag("<named>")], Discriminator(_tensor_form)
]


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_name_or_list(value: Any) -> bool:
    return _is_name(value) or (isinstance(value, list) and bool(value) and all(map(_is_name, value)))


def _must_be(words: str, is_valid: Callable[[Any], bool], *, or_mapping: bool = False) -> BeforeValidator:
    """Check the form of a value first, so that a wrong form is one problem instead of one for each alternative."""

    def check(value: Any) -> Any:
        mapping = or_mapping and isinstance(value, dict) and value and all(map(is_valid, value.values()))
        if not mapping and not is_valid(value):
            raise ValueError(f"expected {words}; got {value!r:.60}")
        return value

    return BeforeValidator(check)


def _to_tuples(path: Any) -> Any:
    if isinstance(path, dict):
        return {name: _to_tuples(entry) for name, entry in path.items()}
    return (path,) if isinstance(path, str) else tuple(path)


_Word = Annotated[str, Field(min_length=1)]
_Words = Annotated[list[_Word], Field(min_length=1)]
Paths = Annotated[_Word | _Words, _must_be("a path or a list of paths", _is_name_or_list), AfterValidator(_to_tuples)]
PathsByName = Annotated[
    _Word | _Words | Annotated[dict[str, _Word | _Words], Field(min_length=1)],
    _must_be("a path, a list of paths, or a mapping of inputs to paths", _is_name_or_list, or_mapping=True),
    AfterValidator(_to_tuples),
]
ArrayNames = Annotated[
    _Word | Annotated[dict[str, _Word], Field(min_length=1)],
    _must_be("a name, or a mapping of inputs to names", _is_name, or_mapping=True),
]
Names = Annotated[
    _Word | _Words | Annotated[dict[str, _Word | _Words], Field(min_length=1)],
    _must_be("a name, a list of names, or a mapping of inputs to either", _is_name_or_list, or_mapping=True),
]


class Tokenizer(Section):
    """How text becomes tokens: split and hashed, or a Keras TextVectorization layer."""

    split: Literal["words", "characters", "bytes", "none"] = Field(
        default="words", description="none leaves text as it is, for a model that takes text"
    )
    max: Annotated[int, Field(ge=2, le=2**31 - 1)] = Field(default=20_000, description="tokens are numbers below this")
    TextVectorization: dict[str, Any] | None = Field(
        default=None, description="arguments for keras.layers.TextVectorization"
    )

    @model_validator(mode="after")
    def _one_way(self) -> Tokenizer:
        arguments = self.TextVectorization
        if self.split == "none" and "max" in self.model_fields_set:
            raise ValueError("text that is not split has no tokens; remove max")
        if arguments is None:
            return self
        if self.model_fields_set - {"TextVectorization"}:
            raise ValueError("TextVectorization has its own arguments; remove split and max beside it")
        if arguments.get("output_sequence_length") is not None:
            raise ValueError(
                "remove output_sequence_length: samples keep their lengths, and search.sequence_length cuts them"
            )
        if arguments.get("output_mode", "int") != "int":
            raise ValueError(f"expected output_mode to be int, one number a token; got {arguments['output_mode']!r}")
        if arguments.get("ragged", True) is not True:
            raise ValueError("ragged is always true, so that samples keep their lengths; remove it")
        return self


class Synthetic(Section):
    """Random samples. A model with several inputs or outputs gets a mapping of their names to tensors."""

    inputs: Tensors
    targets: Tensors


class Npz(Section):
    """Arrays in NumPy archives, one entry a sample. Several archives are read one after the other."""

    path: Paths
    inputs: ArrayNames = "x"
    targets: ArrayNames = "y"


class Npy(Section):
    """NumPy files of one array each, one entry a sample."""

    inputs: PathsByName
    targets: PathsByName


class _Table(Section):
    path: Paths
    inputs: Names
    targets: Names
    text: list[_Word] = []

    @model_validator(mode="after")
    def _text_is_in_use_and_stands_alone(self) -> _Table:
        columns = [*domain.by_name(self.inputs).values(), *domain.by_name(self.targets).values()]
        names = [name for entry in columns for name in ([entry] if isinstance(entry, str) else entry)]
        for name in self.text:
            if name not in names:
                raise ValueError(f"text: {name!r} is in neither inputs nor targets{nearest(name, names)}")
            if any(name in entry for entry in columns if isinstance(entry, list)):
                raise ValueError(f"text: {name!r} is in a list of numbers; make it an input by itself")
        return self


class Csv(_Table):
    """Tables with a header. A list of columns is one vector."""

    text: list[_Word] = Field([], description="the columns that are text; all others are numbers")
    delimiter: Annotated[str, _must_be("one character", lambda value: isinstance(value, str) and len(value) == 1)] = ","


class Jsonl(_Table):
    """One JSON object a line. A list of fields is one vector."""

    text: list[_Word] = Field([], description="the targets whose strings are text instead of class names")


class Text(Section):
    """Plain text, one sample a line."""

    path: Paths
    targets: Annotated[
        Annotated[Literal["next", "same"], Tag("<word>")] | Annotated[Tensor, Tag("<tensor>")],
        Discriminator(lambda value: "<tensor>" if isinstance(value, dict | BaseModel) else "<word>"),
    ] = Field("next", description="each token's successor, the tokens themselves, or a random tensor")


class Feature(Section):
    """One feature of a tf.train.Example."""

    domain_type: ClassVar[type] = domain.Feature
    shape: list[Positive | None] = Field([], description="null is an axis that varies")
    dtype: Literal["int64", "float32", "string"]

    @model_validator(mode="after")
    def _can_be_read(self) -> Feature:
        if None in self.shape[1:]:
            raise ValueError("only the first axis may be null")
        if self.dtype == "string" and self.shape:
            raise ValueError("a string is one text; its shape is []")
        return self


class Tfrecord(Section):
    """Files of tf.train.Example."""

    path: Paths
    features: Annotated[dict[str, Feature], Field(min_length=1)]
    inputs: ArrayNames
    targets: ArrayNames
    compression: Literal["none", "gzip"] = "none"

    @model_validator(mode="after")
    def _names_are_features(self) -> Tfrecord:
        for key in ("inputs", "targets"):
            for name in domain.by_name(getattr(self, key)).values():
                if name not in self.features:
                    near = nearest(str(name), self.features)
                    raise ValueError(
                        f"{key}: {name!r} is not among the features{near or ': ' + ', '.join(self.features)}"
                    )
        return self


class Images(Section):
    """Folders of images, one folder a class."""

    path: Paths
    size: Annotated[list[Positive], Field(min_length=2, max_length=2, description="height and width")]
    channels: Literal[1, 3, 4] = 3


class Tfds(Section):
    """A dataset that TensorFlow Datasets has prepared on disk; nothing is downloaded."""

    path: _Word = Field(description="the folder of the dataset's version")
    split: _Word = "train"
    inputs: ArrayNames
    targets: ArrayNames


_KINDS: dict[str, type[domain.DatasetSpec]] = {
    "synthetic": domain.SyntheticData,
    "npz": domain.NpzData,
    "npy": domain.NpyData,
    "csv": domain.CsvData,
    "jsonl": domain.JsonlData,
    "text": domain.TextData,
    "tfrecord": domain.TfrecordData,
    "images": domain.ImagesData,
    "python": domain.PythonData,
    "tfds": domain.TfdsData,
}


class Dataset(Section):
    """The data: exactly one kind, and how its text becomes tokens if it has any."""

    synthetic: Synthetic | None = None
    npz: Npz | None = None
    npy: Npy | None = None
    csv: Csv | None = None
    jsonl: Jsonl | None = None
    text: Text | None = None
    tfrecord: Tfrecord | None = None
    images: Images | None = None
    python: InModule | None = Field(
        None,
        description="package.module:function, found from the spec; returns a tf.data.Dataset of single samples, or "
        "arrays: inputs, targets and, if there are any, sample weights; several inputs in a tuple or a dict",
    )
    tfds: Tfds | None = None
    tokenizer: Tokenizer | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Dataset:
        if sum(getattr(self, kind) is not None for kind in _KINDS) != 1:
            *kinds, last = _KINDS
            raise ValueError(f"expected exactly one of {', '.join(kinds)} and {last}")
        return self


def dataset_spec(dataset: Dataset) -> domain.DatasetSpec:
    """Convert the one kind of data that the section names."""
    kind = next(kind for kind in _KINDS if getattr(dataset, kind) is not None)
    section: Section | str = getattr(dataset, kind)
    if isinstance(section, str):
        return domain.PythonData(function=section)
    tokenizer = dataset.tokenizer or Tokenizer()
    return convert(
        section,
        _KINDS[kind],
        paths=getattr(section, "path", None),
        tokenizer=convert(tokenizer, domain.Tokenizer, vectorization=tokenizer.TextVectorization),
    )


def data_files(dataset: domain.DatasetSpec, folder: Path) -> Iterator[Path]:
    """Yield every file of the dataset: those its paths match, all files in its folders, and the vocabulary."""
    are_folders = isinstance(dataset, domain.ImagesData | domain.TfdsData)
    for paths in domain.paths_by_part(dataset).values():
        for match in matching_paths(paths, folder, folders=are_folders):
            yield from (path for path in match.rglob("*") if path.is_file()) if are_folders else [match]
    if isinstance(dataset, domain.TokenizedData):
        vocabulary = (dataset.tokenizer.vectorization or {}).get("vocabulary")
        if isinstance(vocabulary, str):
            yield from matching_paths([vocabulary], folder)


def check_dataset(dataset: Any, folder: Path) -> Iterator[Mistake]:
    """Yield the mistakes that types can't show: missing files and useless tokenizers."""
    if not isinstance(dataset, dict):
        return
    for kind in ("npz", "csv", "jsonl", "text", "tfrecord", "images", "tfds"):
        section = dataset.get(kind)
        if isinstance(section, dict):
            path: KeyPath = ("dataset", kind, "path")
            yield from _check_paths(section.get("path"), path, folder, folders=kind in ("images", "tfds"))
    for key in ("inputs", "targets"):
        entry = dataset["npy"].get(key) if isinstance(dataset.get("npy"), dict) else None
        for name, paths in domain.by_name(entry).items():
            yield from _check_paths(paths, ("dataset", "npy", key, *([name] if name else [])), folder)
    yield from _check_tokenizer(dataset, folder)


def _check_paths(paths: Any, at: KeyPath, folder: Path, *, folders: bool = False) -> Iterator[Mistake]:
    """Yield a mistake for each path or pattern without a match."""
    entries: list[tuple[KeyPath, Any]] = [(at, paths)]
    if isinstance(paths, list):
        entries = [((*at, index), path) for index, path in enumerate(paths)]
    for place, path in entries:
        if isinstance(path, str) and not matching_paths([path], folder, folders=folders):
            yield place, f"no such {'folder' if folders else 'file'}: {folder / path}"


def _check_tokenizer(dataset: dict[str, Any], folder: Path) -> Iterator[Mistake]:
    tokenizer = dataset.get("tokenizer")
    if tokenizer is None:
        return
    kinds = [kind for kind in _KINDS if dataset.get(kind) is not None]
    if len(kinds) == 1 and (reason := _reason_without_text(kinds[0], dataset[kinds[0]])):
        yield ("dataset", "tokenizer"), f"{reason}; remove tokenizer"
    if not isinstance(tokenizer, dict):
        return
    lines = dataset.get("text")
    if tokenizer.get("split") == "none" and isinstance(lines, dict):
        targets = lines.get("targets", "next")
        if targets in ("next", "same"):
            message = f"text that is not split has no tokens for targets; expected a tensor; got {targets!r}"
            yield ("dataset", "text", "targets"), message
    layer = tokenizer.get("TextVectorization")
    vocabulary = layer.get("vocabulary") if isinstance(layer, dict) else None
    if isinstance(vocabulary, str):
        yield from _check_paths(vocabulary, ("dataset", "tokenizer", "TextVectorization", "vocabulary"), folder)


def _reason_without_text(kind: str, section: Any) -> str:
    """Return the reason why data of this kind has no text, empty if it may have some."""
    if kind in ("jsonl", "text", "tfds"):
        return ""
    if kind == "csv":
        return "" if isinstance(section, dict) and section.get("text") else "dataset.csv.text names no column"
    if kind == "tfrecord":
        features = section.get("features") if isinstance(section, dict) else None
        listed = features.values() if isinstance(features, dict) else []
        strings = [feature for feature in listed if isinstance(feature, dict) and feature.get("dtype") == "string"]
        return "" if strings else "no feature of dataset.tfrecord is a string"
    return f"dataset.{kind} holds no text"
