"""Read YAML text as plain values with their lines. Refuse dangerous or ambiguous YAML."""

from __future__ import annotations

import datetime
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from oomtune.errors import Problem, SpecProblem

KeyPath = tuple[str | int, ...]

_MAX_BYTES = 1024**2
_MAX_VALUES = 100_000
_MAX_DEPTH = 50
_PLAIN_TAGS = {"tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"}


class SpecLoader(yaml.SafeLoader):
    """The safe loader, which also reads numbers without a dot, such as `1e-4`."""


SpecLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)[eE][-+]?\d+$"),
    list("-+0123456789."),
)


@dataclass(slots=True)
class Document:
    """The values of a spec, and the place of every key and list entry: a file and line, or a flag."""

    values: dict[str, Any]
    origin: str
    places: dict[KeyPath, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def place(self, path: KeyPath) -> str:
        """Return the place of the value at this path, or of the nearest value around it."""
        while path not in self.places and path:
            path = path[:-1]
        return self.places.get(path, self.origin)

    def problem(self, path: KeyPath, message: str) -> Problem:
        return Problem(where=self.place(path), key=dotted(path), message=message)

    def override(self, key: str, value: Any, source: str) -> None:
        """Set the entry at a dotted key, where a number is a list index. Raise `LookupError` if there is none."""
        *parents, last = key.split(".")
        entry: Any = self.values
        path: KeyPath = ()
        for part in parents:
            step = _step(entry, part)
            path = (*path, step)
            if isinstance(entry, dict) and not isinstance(entry.get(step), dict | list):
                entry[step] = {}
            entry = entry[step]
        step = _step(entry, last)
        entry[step] = value
        full: KeyPath = (*path, step)
        self.places[full] = source

    def remove(self, key: str) -> None:
        *parents, last = key.split(".")
        entry = entry_at(self.values, *parents)
        if isinstance(entry, dict):
            entry.pop(last, None)


def dotted(path: KeyPath) -> str:
    """Return a path as the user writes it: `model.layers[1].Dense`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def _step(entry: Any, part: str) -> str | int:
    if isinstance(entry, dict):
        return part
    if not isinstance(entry, list):
        raise LookupError(f"{part!r} is inside a value that has no entries")
    if not part.isdecimal() or int(part) >= len(entry):
        raise LookupError(f"{part!r} is not an index of a list of {len(entry)}")
    return int(part)


def read_document(path: Path) -> Document:
    """Read a spec file. Raise `SpecProblem` unless it is a YAML mapping."""
    text = _read(path)
    origin = str(path)
    try:
        loader = SpecLoader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                raise _refusal(origin, "the file is empty", hint="start from a file in configs/")
            if not isinstance(node, yaml.MappingNode):
                kind = "a list" if isinstance(node, yaml.SequenceNode) else "a single value"
                where = f"{origin}:{node.start_mark.line + 1}"
                raise _refusal(where, f"expected a mapping with model, dataset, ...; got {kind}")
            reader = _Reader(loader, origin)
            values = reader.read(node, ())
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{origin}:{mark.line + 1}" if mark else origin
        raise _refusal(where, f"not valid YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise _refusal(origin, f"not valid YAML: {str(error).splitlines()[0]}") from None
    except RecursionError:
        raise _refusal(origin, f"nested more than {_MAX_DEPTH} levels deep") from None
    return Document(values=values, origin=origin, places=reader.places, problems=reader.problems)


def parse_value(text: str) -> Any:
    """Parse the value of `--set` as a spec would. Raise `ValueError` if the text is not one value."""
    loader = SpecLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        reader = _Reader(loader, "value")
        value = reader.read(node, ())
    except (yaml.YAMLError, RecursionError, SpecProblem) as error:
        raise ValueError(str(error).splitlines()[0]) from None
    finally:
        loader.dispose()
    if reader.problems:
        raise ValueError(reader.problems[0].message)
    return value


def entry_at(values: Any, *keys: str) -> Any:
    """Return the entry under these nested keys, or None."""
    for key in keys:
        values = values.get(key) if isinstance(values, dict) else None
    return values


def parse_text(text: str) -> Any:
    """Return a whole YAML text as plain values, with numbers read as in a spec. Raise `yaml.YAMLError`."""
    loader = SpecLoader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def _refusal(where: str, message: str, *, hint: str = "") -> SpecProblem:
    return SpecProblem([Problem(where=where, key="", message=message)], hint=hint)


def _read(path: Path) -> str:
    try:
        if path.is_dir():
            raise _refusal(str(path), "this is a folder, not a spec file")
        with path.open("rb") as file:
            text = file.read(_MAX_BYTES + 1)
        if len(text) > _MAX_BYTES:
            raise _refusal(str(path), f"too large for a spec; at most {_MAX_BYTES:,} bytes are read")
        return text.decode("utf-8")
    except FileNotFoundError:
        raise _refusal(str(path), "no such file") from None
    except UnicodeDecodeError as error:
        raise _refusal(str(path), f"not text: byte {error.start} is not UTF-8") from None
    except OSError as error:
        raise _refusal(str(path), f"can't be read: {error.strerror}") from None


class _Reader:
    """Walks YAML nodes to record places and to catch duplicate keys and runaway aliases."""

    def __init__(self, loader: SpecLoader, origin: str) -> None:
        self.loader = loader
        self.origin = origin
        self.places: dict[KeyPath, str] = {}
        self.problems: list[Problem] = []
        self.count = 0

    def read(self, node: yaml.Node, path: KeyPath) -> Any:
        self.count += 1
        where = f"{self.origin}:{node.start_mark.line + 1}"
        if self.count > _MAX_VALUES:
            raise _refusal(where, f"aliases expand this to more than {_MAX_VALUES:,} values")
        if len(path) > _MAX_DEPTH:
            raise _refusal(where, f"nested more than {_MAX_DEPTH} levels deep")
        self.places.setdefault(path, where)
        if node.tag not in _PLAIN_TAGS and not isinstance(node, yaml.ScalarNode):
            raise _refusal(where, f"not valid YAML here: the tag {node.tag!r} is not plain data")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.read(item, (*path, index)) for index, item in enumerate(node.value)]
        try:
            value = self.loader.construct_object(node)
        except (ValueError, LookupError, AttributeError):  # PyYAML does not check that a scalar fits its tag
            kind = node.tag.rpartition(":")[2]
            raise _refusal(where, f"{node.value!r} is not a valid {kind}; quote it if it is text") from None
        if isinstance(value, bytes | datetime.date) or (isinstance(value, float) and not math.isfinite(value)):
            raise _refusal(where, f"{node.value!r} is neither text nor a finite number; quote it if it is text")
        return value

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            where = f"{self.origin}:{key_node.start_mark.line + 1}"
            if not isinstance(key_node, yaml.ScalarNode):
                raise _refusal(where, "a key must be a word, not a list or a mapping")
            key = str(key_node.value)
            inner = (*path, key)
            if key in values:
                self.problems.append(Problem(where=where, key=dotted(inner), message="duplicate key; keep one"))
                continue
            self.places[inner] = where
            values[key] = self.read(value_node, inner)
        return values
