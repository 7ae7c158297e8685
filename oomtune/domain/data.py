"""The source of a spec's data, and the statistics of one pass over it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Columns = str | tuple[str, ...]
"""One column or field, or several that form one vector."""
Names = str | tuple[str, ...] | dict[str, str | tuple[str, ...]]
"""Columns, or columns by the names of the model's inputs or outputs."""
ArrayNames = str | dict[str, str]
"""One array or feature, or one for each of the model's inputs or outputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """One tensor of a sample. `sequence_length` in the shape stands for the length under trial."""

    shape: tuple[int | Literal["sequence_length"], ...]
    dtype: str
    max: float | None = None


Tensors = TensorSpec | dict[str, TensorSpec]
"""One tensor, or several by the names of the model's inputs or outputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenizer:
    """How text becomes tokens: split and hashed, or by a `TextVectorization` layer with these arguments. A split of
    `none` passes the text on unchanged."""

    split: Literal["words", "characters", "bytes", "none"] = "words"
    max: int = 20_000
    vectorization: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticData:
    kind: Literal["synthetic"] = "synthetic"
    inputs: Tensors
    targets: Tensors


@dataclass(frozen=True, slots=True, kw_only=True)
class NpzData:
    """Named arrays in NumPy archives. Several archives are read one after the other."""

    kind: Literal["npz"] = "npz"
    paths: tuple[str, ...]
    inputs: ArrayNames
    targets: ArrayNames


@dataclass(frozen=True, slots=True, kw_only=True)
class NpyData:
    """NumPy files with one array each, by input and target."""

    kind: Literal["npy"] = "npy"
    inputs: tuple[str, ...] | dict[str, tuple[str, ...]]
    targets: tuple[str, ...] | dict[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvData:
    kind: Literal["csv"] = "csv"
    paths: tuple[str, ...]
    inputs: Names
    targets: Names
    text: tuple[str, ...] = ()
    """The columns that are text. All others are numbers or, among the targets, class names."""
    delimiter: str = ","
    tokenizer: Tokenizer = Tokenizer()


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonlData:
    kind: Literal["jsonl"] = "jsonl"
    paths: tuple[str, ...]
    inputs: Names
    targets: Names
    text: tuple[str, ...] = ()
    """The target fields whose strings are text. In other targets a string is a class name."""
    tokenizer: Tokenizer = Tokenizer()


@dataclass(frozen=True, slots=True, kw_only=True)
class TextData:
    """Plain text, one sample a line. Targets are the next tokens, the same tokens, or random."""

    kind: Literal["text"] = "text"
    paths: tuple[str, ...]
    targets: Literal["next", "same"] | TensorSpec
    tokenizer: Tokenizer = Tokenizer()


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One feature of a `tf.train.Example`. A first axis of None varies from sample to sample."""

    shape: tuple[int | None, ...]
    dtype: Literal["int64", "float32", "string"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TfrecordData:
    kind: Literal["tfrecord"] = "tfrecord"
    paths: tuple[str, ...]
    features: dict[str, Feature]
    inputs: ArrayNames
    targets: ArrayNames
    compression: Literal["none", "gzip"] = "none"
    tokenizer: Tokenizer = Tokenizer()


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagesData:
    """Folders with one subfolder for each class."""

    kind: Literal["images"] = "images"
    paths: tuple[str, ...]
    size: tuple[int, int]
    channels: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TfdsData:
    """A dataset that TensorFlow Datasets has prepared on disk, by the folder of its version."""

    kind: Literal["tfds"] = "tfds"
    path: str
    inputs: ArrayNames
    targets: ArrayNames
    split: str = "train"
    tokenizer: Tokenizer = Tokenizer()


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonData:
    """A function of the user that returns the data."""

    kind: Literal["python"] = "python"
    function: str


TokenizedData = CsvData | JsonlData | TextData | TfrecordData | TfdsData
"""The kinds of data that can hold text."""
DatasetSpec = TokenizedData | SyntheticData | NpzData | NpyData | ImagesData | PythonData
"""Any kind of data."""


def by_name(entries: Any) -> dict[str, Any]:
    """Return entries of the spec by the names of the model's inputs or outputs. A single entry has the empty name."""
    return entries if isinstance(entries, dict) else {"": entries}


def paths_by_part(dataset: DatasetSpec) -> dict[str, tuple[str, ...]]:
    """Return the paths and patterns of the dataset by the part of a sample that they hold, such as `inputs.words`.

    Paths that hold whole samples have the empty name.
    """
    match dataset:
        case SyntheticData() | PythonData():
            return {}
        case NpyData():
            sides = {"inputs": dataset.inputs, "targets": dataset.targets}
            return {f"{side}.{name}": paths for side, entry in sides.items() for name, paths in by_name(entry).items()}
        case TfdsData():
            return {"": (dataset.path,)}
        case _:
            return {"": dataset.paths}


ENDLESS = 2**62
"""The sample count of a pipeline that never ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """The statistics of one pass over the data."""

    samples: int
    """The number of samples; an estimate if the pass read only some of them."""
    read: int
    """The number of samples that the pass read."""
    lengths: tuple[tuple[int, int], ...] = ()
    """Pairs of a sample length and the number of samples, in ascending order; empty if samples have no length."""
    ranges: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The smallest and largest value of each part of a sample that holds whole numbers, such as `inputs.words`. A
    single part has an empty name: `inputs.`. Targets may be stored as floats."""
    fractions: dict[str, float] = field(default_factory=dict)
    """The first fractional value in each part of the targets, if any."""
    places: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The locations, such as a file and line, of the smallest and largest value (or the first fractional value) of each
    part of the targets. Empty unless the data is read sample by sample."""
    sequences: tuple[str, ...] = ()
    """The parts of a sample whose first axis is its length."""
    rows_path: str = ""
    """The file that holds the longest samples."""
    more: bool = False
    """Whether an unknown number of samples was left unread. `samples` then counts only those read."""

    @property
    def all_read(self) -> bool:
        return self.read == self.samples and not self.more

    def percentile(self, percent: float) -> int:
        """Return the smallest length that this percentage of the samples does not exceed."""
        required, count = percent / 100 * sum(samples for _, samples in self.lengths), 0
        for length, samples in self.lengths:
            count += samples
            if count >= required:
                return length
        return self.lengths[-1][0]

    def share_cut(self, length: int) -> float:
        """Return the share of samples that are longer than `length`."""
        cut = sum(samples for sample_length, samples in self.lengths if sample_length > length)
        return cut / sum(samples for _, samples in self.lengths)

    def share_padding(self, length: int) -> float:
        """Return the share of padding in a batch if every sample is cut or padded to this length."""
        filled = sum(min(sample_length, length) * samples for sample_length, samples in self.lengths)
        return 1 - filled / (length * sum(samples for _, samples in self.lengths))
