"""Load a spec from a file or values, apply overrides, and return a `ProbeSpec` or all problems at once."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from oomtune import domain
from oomtune.errors import Problem, SpecProblem, UsageProblem
from oomtune.spec.dataset import check_dataset, dataset_spec
from oomtune.spec.fields import Mistake, convert
from oomtune.spec.model import check_model, model_spec
from oomtune.spec.problems import problems_of
from oomtune.spec.saved_config import is_text_model
from oomtune.spec.schema import LENGTH, Spec, check_sections
from oomtune.spec.search import search_space
from oomtune.spec.training import training_spec
from oomtune.spec.yaml_text import Document, KeyPath, entry_at, parse_value, read_document

_LIMITS = ("device.like", "device.memory_limit")
"""Two ways to set the limit. A flag that sets one replaces both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSpec:
    """A parsed spec and its plain values, without the answer of an earlier probe."""

    path: Path
    spec: domain.ProbeSpec
    values: dict[str, Any]
    was_tuned: bool
    document: Document
    from_file: bool = True
    """Whether `path` is a file. For a spec given as values it is a placeholder."""
    source: Path | None = None
    """The file that people edit: `path` itself or, for a tuned config, the source spec that it names, if any."""
    overridden: tuple[str, ...] = ()
    """The dotted keys whose values differ from `source`: set by flags, now or when the answer was found, or edited in
    the tuned config."""

    @property
    def sha256(self) -> str:
        return digest_of(self.values)

    def place(self, key: str) -> str:
        """Return the place of the entry with this dotted key: its file and line, or the flag that set it."""
        parts = re.findall(r"[^.\[\]]+", key)
        return self.document.place(tuple(int(part) if part.isdecimal() else part for part in parts))


def digest_of(values: Mapping[str, Any]) -> str:
    """Return a digest of a spec's values, independent of the layout of its file."""
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()


def load_spec(
    source: str | Path | Document | Mapping[str, Any],
    *,
    settings: Sequence[str] = (),
    flags: Mapping[str, tuple[str, Any]] | None = None,
    every_lane: bool = False,
) -> LoadedSpec:
    """Load a spec from a file or from values. Raise `SpecProblem` with all its problems.

    `settings` are `key.path=value` texts; `flags` map a dotted key to the flag's name and value.
    """
    document, path = _document(source)
    overridden = [_apply_setting(document, setting) for setting in settings]
    for key, (flag, value) in (flags or {}).items():
        if key in _LIMITS:
            overridden += _LIMITS
            for limit in _LIMITS:
                document.remove(limit)
        overridden.append(key)
        document.override(key, value, flag)
    tuned = document.values.get("tuned")
    folder = path.resolve().parent
    if isinstance(tuned, dict) and isinstance(tuned.get("folder"), str):
        # A tuned config in another folder names the folder of its spec, where data and builders are.
        folder = (folder / tuned["folder"]).resolve()
    parsed = _validate(document, folder)
    document.values.pop("tuned", None)
    origin, overridden_before = (path.resolve(), []) if tuned is None else _origin(tuned, path)
    return LoadedSpec(
        path=path,
        spec=_to_domain(parsed, path, folder, every_lane),
        values=document.values,
        was_tuned=tuned is not None,
        document=document,
        from_file=not isinstance(source, Mapping),
        source=None if isinstance(source, Mapping) else origin,
        overridden=tuple(dict.fromkeys([*overridden_before, *overridden])),
    )


def _document(source: str | Path | Document | Mapping[str, Any]) -> tuple[Document, Path]:
    if isinstance(source, Document):
        return copy.deepcopy(source), Path(source.origin)
    if isinstance(source, Mapping):
        try:
            values = json.loads(json.dumps(source, allow_nan=False))
        except (TypeError, ValueError) as error:
            problem = Problem(where="spec", key="", message=f"holds a value that is not plain data: {error}")
            raise SpecProblem([problem]) from None
        return Document(values=values, origin="spec"), Path.cwd() / "spec.yaml"
    path = Path(source)
    return read_document(path), path


def _apply_setting(document: Document, setting: str) -> str:
    """Override one entry, and return its dotted key."""
    key, equals, text = setting.partition("=")
    if not equals or not all(key.split(".")):
        raise UsageProblem(
            f"--set {setting}: expected key.path=value", hint="for example: --set search.resolution=0.05"
        )
    try:
        document.override(key, parse_value(text), f"--set {key}")
    except (ValueError, LookupError) as error:
        raise UsageProblem(f"--set {setting[:80]}: {error.args[0]}") from None
    return key


def _origin(tuned: Any, path: Path) -> tuple[Path | None, list[str]]:
    """Return the source spec that a tuned config names, and the keys that its probe overrode."""
    spec, overridden = entry_at(tuned, "evidence", "spec"), entry_at(tuned, "evidence", "overridden")
    source = (path.resolve().parent / spec).resolve() if isinstance(spec, str) else None
    return source, [str(key) for key in overridden] if isinstance(overridden, list) else []


def _validate(document: Document, folder: Path) -> Spec:
    problems = list(document.problems)
    parsed: Spec | None = None
    try:
        parsed = Spec.model_validate(document.values)
    except ValidationError as error:
        problems += problems_of(error, document)
    mistakes = [*_check_values(document.values, folder), *(check_sections(parsed) if parsed is not None else ())]
    problems += [document.problem(path, message) for path, message in mistakes]
    if problems or parsed is None:
        raise SpecProblem(sorted(problems, key=_by_line))
    return parsed


def _by_line(problem: Problem) -> tuple[str, int]:
    origin, _, line = problem.where.rpartition(":")
    return (origin, int(line)) if line.isdigit() else (problem.where, 0)


def _check_values(values: dict[str, Any], folder: Path) -> Iterator[Mistake]:
    """Yield the mistakes that types can't show. Plain values are checked, so a wrong type elsewhere hides nothing."""
    yield from check_model(values.get("model"), folder)
    yield from check_dataset(values.get("dataset"), folder)
    file = entry_at(values, "model", "keras_file")
    if entry_at(values, "search", LENGTH) is None:
        # In other kinds of data `sequence_length` may be the name of a column.
        for section in (("model",), ("dataset", "synthetic"), ("dataset", "text")):
            for path in _uses_of_length(entry_at(values, *section), section):
                yield path, "stands for search.sequence_length, which is not set"
    elif isinstance(file, str) and is_text_model(folder / file):
        message = f"{Path(file).name} takes text and turns it into tokens itself, so it has no length to search"
        yield ("search", LENGTH), f"{message}; remove this key to train on whole texts"


def _uses_of_length(value: Any, path: KeyPath) -> Iterator[KeyPath]:
    """Yield the path of each value that is the word `sequence_length`."""
    if value == LENGTH:
        yield path
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in entries:
        yield from _uses_of_length(entry, (*path, key))


def _to_domain(spec: Spec, path: Path, folder: Path, every_lane: bool) -> domain.ProbeSpec:
    percentiles, limit = spec.search.percentiles, spec.device.memory_limit
    return domain.ProbeSpec(
        name=spec.name or path.name.removesuffix(".yaml").removesuffix(".yml").removesuffix(".tuned"),
        folder=str(folder),
        model=model_spec(spec.model),
        dataset=None if spec.dataset is None else dataset_spec(spec.dataset),
        training=training_spec(spec.training, spec.search.optimizer),
        space=search_space(spec.search, spec.training.effective_batch_size, spec.trial.confirm_steps, every_lane),
        device=convert(spec.device, domain.DeviceRequest, memory_limit_bytes=None if limit == "auto" else limit),
        trial=convert(spec.trial, domain.TrialSettings, timeout_s=spec.trial.timeout),
        length_percentiles=tuple(percentiles.percentiles) if percentiles else (),
        length_multiple_of=percentiles.multiple_of if percentiles else 1,
        min_sequence_length=spec.search.min_sequence_length or 1,
        min_batch_size=spec.search.min_batch_size,
    )
