"""The shape of a spec's `dataset`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Discriminator, Field, Tag, model_validator

from oomtune.spec.sections import DType, Positive, Section, nearest


class Tensor(Section):
    """One tensor of a sample; `sequence_length` in the shape stands for the value under trial."""

    shape: list[Positive | Literal["sequence_length"]]
    dtype: DType = "float32"
    max: Annotated[float, Field(gt=0)] | None = Field(None, description="values lie below this; needed for integers")

    @model_validator(mode="after")
    def _integers_have_a_bound(self) -> Tensor:
        if "int" not in self.dtype:
            return self
        if self.max is None:
            raise ValueError(f"max is missing: how many different values an {self.dtype} may have")
        bits = int(self.dtype.rpartition("int")[2])
        most = 2 ** (bits if self.dtype.startswith("u") else bits - 1)
        if self.max != int(self.max) or not 1 <= self.max <= most:
            raise ValueError(
                f"expected max to be a whole number from 1 to {most} for an {self.dtype}; got {self.max:g}"
            )
        return self


def _one_or_named(value: Any) -> str:
    several = isinstance(value, dict) and value and "shape" not in value
    named = several and all(isinstance(entry, dict | BaseModel) for entry in value.values())
    return "<named>" if named else "<tensor>"


Tensors = Annotated[
    Annotated[Tensor, Tag("<tensor>")] | Annotated[dict[str, Tensor], Tag("<named>")],
    Discriminator(_one_or_named),
]


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_name_or_list(value: Any) -> bool:
    return _is_name(value) or (isinstance(value, list) and bool(value) and all(map(_is_name, value)))


def _must_be(words: str, fits: Callable[[Any], bool], *, or_mapping: bool = False) -> BeforeValidator:
    """A check of the whole value, so that a value of several forms that has none of them is one problem, not three."""

    def check(value: Any) -> Any:
        mapping = or_mapping and isinstance(value, dict) and value and all(map(fits, value.values()))
        if not mapping and not fits(value):
            raise ValueError(f"expected {words}; got {value!r:.60}")
        return value

    return BeforeValidator(check)


Word = Annotated[str, Field(min_length=1)]
Words = Annotated[list[Word], Field(min_length=1)]
Paths = Annotated[Word | Words, _must_be("a path or a list of paths", _is_name_or_list)]
PathsByName = Annotated[
    Word | Words | Annotated[dict[str, Word | Words], Field(min_length=1)],
    _must_be("a path, a list of paths, or a mapping of inputs to paths", _is_name_or_list, or_mapping=True),
]
ArrayNames = Annotated[
    Word | Annotated[dict[str, Word], Field(min_length=1)],
    _must_be("a name, or a mapping of inputs to names", _is_name, or_mapping=True),
]
Names = Annotated[
    Word | Words | Annotated[dict[str, Word | Words], Field(min_length=1)],
    _must_be("a name, a list of names, or a mapping of inputs to either", _is_name_or_list, or_mapping=True),
]


def _in_use(names: str | list[str] | dict[str, Any]) -> Iterator[str | list[str]]:
    yield from names.values() if isinstance(names, dict) else [names]


class Synthetic(Section):
    """Random samples. A model with several inputs or outputs gets a mapping of their names to tensors."""

    inputs: Tensors
    targets: Tensors


class Npz(Section):
    """Arrays in NumPy archives, one entry a sample; several archives are one after the other."""

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
    text: list[Word] = []

    @model_validator(mode="after")
    def _text_is_in_use_and_stands_alone(self) -> _Table:
        columns = [*_in_use(self.inputs), *_in_use(self.targets)]
        names = [name for entry in columns for name in ([entry] if isinstance(entry, str) else entry)]
        for name in self.text:
            if name not in names:
                raise ValueError(f"text: {name!r} is in neither inputs nor targets{nearest(name, names)}")
            if any(name in entry for entry in columns if isinstance(entry, list)):
                raise ValueError(f"text: {name!r} is in a list of numbers; give it an input of its own")
        return self


class Csv(_Table):
    """Tables with a header. A list of columns is one vector."""

    text: list[Word] = Field([], description="the columns that are text; all others are numbers")
    delimiter: Annotated[str, _must_be("one character", lambda value: isinstance(value, str) and len(value) == 1)] = ","


class Jsonl(_Table):
    """One JSON object a line. A list of fields is one vector."""

    text: list[Word] = Field([], description="the targets whose strings are text and not the names of classes")


class Text(Section):
    """Plain text, one sample a line."""

    path: Paths
    targets: Annotated[
        Annotated[Literal["next", "same"], Tag("<word>")] | Annotated[Tensor, Tag("<tensor>")],
        Discriminator(lambda value: "<tensor>" if isinstance(value, dict | BaseModel) else "<word>"),
    ] = Field("next", description="each token's successor, the tokens themselves, or a random tensor")


class Feature(Section):
    """One feature of a tf.train.Example."""

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
            for name in _in_use(getattr(self, key)):
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

    path: Word = Field(description="the folder of the dataset's version")
    split: Word = "train"
    inputs: ArrayNames
    targets: ArrayNames


class Tokenizer(Section):
    """How text becomes tokens: split and hashed, or a Keras TextVectorization layer."""

    split: Literal["words", "characters", "bytes", "none"] = Field(
        "words", description="none leaves text as it is, for a model that takes text"
    )
    max: Annotated[int, Field(ge=2, le=2**31 - 1)] = Field(20_000, description="tokens are numbers below this")
    TextVectorization: dict[str, Any] | None = Field(None, description="arguments for keras.layers.TextVectorization")

    @model_validator(mode="after")
    def _one_way(self) -> Tokenizer:
        given = self.TextVectorization
        if self.split == "none" and "max" in self.model_fields_set:
            raise ValueError("text that is not split has no tokens; remove max")
        if given is None:
            return self
        if self.model_fields_set - {"TextVectorization"}:
            raise ValueError("TextVectorization has arguments of its own; remove split and max beside it")
        if given.get("output_sequence_length") is not None:
            raise ValueError(
                "remove output_sequence_length: samples keep their lengths, and search.sequence_length cuts them"
            )
        if given.get("output_mode", "int") != "int":
            raise ValueError(f"expected output_mode to be int, one number a token; got {given['output_mode']!r}")
        if given.get("ragged", True) is not True:
            raise ValueError("ragged is always true, so that samples keep their lengths; remove it")
        return self


KINDS = ("synthetic", "npz", "npy", "csv", "jsonl", "text", "tfrecord", "images", "python", "tfds")


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
    python: str | None = Field(
        None,
        pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$",
        description="package.module:function, found from the spec; returns a tf.data.Dataset of single samples, or "
        "arrays: inputs, targets and, if there are any, sample weights; several inputs in a tuple or a dict",
    )
    tfds: Tfds | None = None
    tokenizer: Tokenizer | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Dataset:
        if sum(getattr(self, kind) is not None for kind in KINDS) != 1:
            raise ValueError(f"expected exactly one of {', '.join(KINDS[:-1])} and {KINDS[-1]}")
        return self

    @property
    def section(self) -> Synthetic | Npz | Npy | Csv | Jsonl | Text | Tfrecord | Images | Tfds | str:
        """The one kind that is set."""
        kinds = (
            self.synthetic, self.npz, self.npy, self.csv, self.jsonl, self.text, self.tfrecord, self.images,
            self.tfds, self.python,
        )  # fmt: skip
        return next(kind for kind in kinds if kind is not None)
