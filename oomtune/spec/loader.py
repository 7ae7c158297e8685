"""From a spec file and its overrides to a `ProbeSpec`, or to every problem of the file at once."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from oomtune import domain
from oomtune.errors import Problem, SpecProblem, UsageProblem
from oomtune.spec import schema
from oomtune.spec.dataset import dataset_spec, wrong_in_dataset
from oomtune.spec.model import model_spec, wrong_in_model
from oomtune.spec.problems import problems_of
from oomtune.spec.sections import KerasObject, Percentiles, Range
from oomtune.spec.text import Document, Path_, parse_value, read_document

_LENGTH = "sequence_length"
_MOST_LENGTHS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSpec:
    """The spec as types, and as the plain values it was made from (without an earlier answer)."""

    path: Path
    spec: domain.ProbeSpec
    values: dict[str, Any]
    was_tuned: bool

    @property
    def sha256(self) -> str:
        return hashlib.sha256(json.dumps(self.values, sort_keys=True, default=str).encode()).hexdigest()


def load_spec(
    source: str | Path | Mapping[str, Any],
    *,
    settings: Sequence[str] = (),
    flags: Mapping[str, tuple[str, Any]] | None = None,
    every_lane: bool = False,
) -> LoadedSpec:
    """Read a spec. `settings` are `key.path=value` texts; `flags` map a dotted key to the flag's name and value."""
    document, path = _document(source)
    for setting in settings:
        _apply_setting(document, setting)
    for key, (flag, value) in (flags or {}).items():
        if key in ("device.like", "device.memory_limit"):
            document.remove("device.like")
            document.remove("device.memory_limit")
        document.override(key, value, flag)
    tuned = document.values.get("tuned")
    folder = path.resolve().parent
    if isinstance(tuned, dict) and isinstance(tuned.get("folder"), str):
        # A tuned config written elsewhere says where its spec was, so that data and builders are still found.
        folder = (folder / tuned["folder"]).resolve()
    parsed = _validate(document, folder)
    document.values.pop("tuned", None)
    spec = _to_domain(parsed, path, folder, every_lane)
    return LoadedSpec(path=path, spec=spec, values=document.values, was_tuned=tuned is not None)


def _document(source: str | Path | Mapping[str, Any]) -> tuple[Document, Path]:
    if isinstance(source, Mapping):
        try:
            values = json.loads(json.dumps(source, allow_nan=False))
        except (TypeError, ValueError) as error:
            problem = Problem(where="spec", key="", message=f"holds something that is not plain data: {error}")
            raise SpecProblem([problem]) from None
        return Document(values=values, origin="spec"), Path.cwd() / "spec.yaml"
    path = Path(source)
    return read_document(path), path


def _apply_setting(document: Document, setting: str) -> None:
    key, equals, text = setting.partition("=")
    if not equals or not all(key.split(".")):
        raise UsageProblem(
            f"--set {setting}: expected key.path=value", hint="for example: --set search.resolution=0.05"
        )
    try:
        document.override(key, parse_value(text), f"--set {key}")
    except (ValueError, LookupError) as error:
        raise UsageProblem(f"--set {setting[:80]}: {error.args[0]}") from None


def _validate(document: Document, folder: Path) -> schema.Spec:
    problems = list(document.problems)
    parsed: schema.Spec | None = None
    try:
        parsed = schema.Spec.model_validate(document.values)
    except ValidationError as error:
        problems += problems_of(error, document)
    problems += _beyond_types(document, folder)
    if parsed is not None:
        problems += _between_sections(parsed, document)
    if problems or parsed is None:
        raise SpecProblem(sorted(problems, key=_by_line))
    return parsed


def _by_line(problem: Problem) -> tuple[str, int]:
    origin, _, line = problem.where.rpartition(":")
    return (origin, int(line)) if line.isdigit() else (problem.where, 0)


def _problem(document: Document, path: Path_, message: str) -> Problem:
    dotted = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
    return Problem(where=document.place(path), key=dotted, message=message)


def _beyond_types(document: Document, folder: Path) -> Iterator[Problem]:
    """What can be wrong with values of the right type; also looked for when other entries have the wrong one."""
    for path, message in wrong_in_model(document.values.get("model"), folder):
        yield _problem(document, path, message)
    for path, message in wrong_in_dataset(document.values.get("dataset"), folder):
        yield _problem(document, path, message)
    if _at(document.values, "search", _LENGTH) is None:
        # Elsewhere in a dataset it may be the name of a column.
        for section in (("model",), ("dataset", "synthetic"), ("dataset", "text")):
            for path in _mentions(_at(document.values, *section), section):
                yield _problem(document, path, "stands for search.sequence_length, which is not set")


def _at(values: Any, *keys: str) -> Any:
    for key in keys:
        values = values.get(key) if isinstance(values, dict) else None
    return values


def _mentions(value: Any, path: Path_) -> Iterator[Path_]:
    """The paths at which the word `sequence_length` stands for a value."""
    if value == _LENGTH:
        yield path
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in entries:
        yield from _mentions(entry, (*path, key))


def _between_sections(spec: schema.Spec, document: Document) -> Iterator[Problem]:
    yield from _between_model_and_the_rest(spec, document)
    effective, batches = spec.training.effective_batch_size, _axis(spec.search.batch_size)
    if effective is not None and effective < batches[0]:
        message = f"expected at least the smallest batch size, {batches[0]}; got {effective}"
        yield _problem(document, ("training", "effective_batch_size"), message)
    lengths = spec.search.sequence_length
    if isinstance(lengths, Percentiles):
        if spec.dataset is None or spec.dataset.synthetic is not None:
            yield _problem(document, ("search", _LENGTH, "percentiles"), "needs a dataset that is not synthetic")
    elif lengths is not None and len(_axis(lengths)) > _MOST_LENGTHS:
        message = f"gives {len(_axis(lengths)):,} lengths, more than {_MOST_LENGTHS:,}; raise multiple_of"
        yield _problem(document, ("search", _LENGTH), message)
    if spec.search.objective == _LENGTH and spec.search.sequence_length is None:
        yield _problem(document, ("search", "objective"), "needs search.sequence_length, which is not set")


def _between_model_and_the_rest(spec: schema.Spec, document: Document) -> Iterator[Problem]:
    """Code that trains by itself has no use for some sections; without it they are needed."""
    model = spec.model
    if model.script is None and model.train_step is None:
        if spec.dataset is None:
            yield _problem(document, ("dataset",), "this key is missing")
        return
    way = "script" if model.script is not None else "train_step"
    if spec.training.model_fields_set:
        message = f"a {way} compiles and trains by itself; leave this section out"
        yield _problem(document, ("training",), message)
    if model.script is None:
        return
    if spec.dataset is not None:
        yield _problem(document, ("dataset",), "a script reads its own data; leave this section out")
    for word, axis in (("batch_size", spec.search.batch_size), (_LENGTH, spec.search.sequence_length)):
        named = any(f"{{{word}}}" in str(arg) for arg in model.script.args)
        if axis is not None and not named:
            message = f"expected {{{word}}} in one of them, for the {word} under trial: --size {{{word}}}"
            yield _problem(document, ("model", "script", "args"), message)
        if axis is None and named:
            yield _problem(document, ("model", "script", "args"), f"{{{word}}} needs search.{word}, which is not set")


def _axis(axis: int | list[int] | Range) -> range | tuple[int, ...]:
    if isinstance(axis, Range):
        return axis.values()
    return tuple(sorted(set(axis))) if isinstance(axis, list) else (axis,)


def _to_domain(spec: schema.Spec, path: Path, folder: Path, every_lane: bool) -> domain.ProbeSpec:
    lengths = spec.search.sequence_length
    return domain.ProbeSpec(
        name=spec.name or path.name.removesuffix(".yaml").removesuffix(".yml").removesuffix(".tuned"),
        folder=str(folder),
        model=model_spec(spec.model),
        dataset=domain.DatasetSpec() if spec.dataset is None else dataset_spec(spec.dataset),
        training=_training(spec.training),
        space=_space(spec, every_lane),
        device=domain.DeviceRequest(
            kind=spec.device.kind,
            memory_limit_bytes=None if spec.device.memory_limit == "auto" else spec.device.memory_limit,
            like=spec.device.like,
            headroom=spec.device.headroom,
            allocator=spec.device.allocator,
        ),
        trial=domain.TrialSettings(
            warmup_steps=spec.trial.warmup_steps,
            steps=spec.trial.steps,
            confirm_steps=spec.trial.confirm_steps,
            timeout_s=spec.trial.timeout,
        ),
        length_percentiles=tuple(lengths.percentiles) if isinstance(lengths, Percentiles) else (),
        length_multiple_of=lengths.multiple_of if isinstance(lengths, Percentiles) else 1,
    )


def _training(training: schema.Training) -> domain.TrainingSpec:
    validation = training.validation_batch_size
    return domain.TrainingSpec(
        optimizer=_named(training.optimizer),
        loss=None if training.loss is None else _named(training.loss),
        metrics=tuple(_named(metric) for metric in training.metrics),
        jit_compile=None if training.jit_compile == "auto" else training.jit_compile,
        effective_batch_size=training.effective_batch_size,
        validation_batch_size={"same": None, "none": 0}[validation] if isinstance(validation, str) else validation,
        run_eagerly=training.run_eagerly,
    )


def _named(entry: str | KerasObject) -> str | domain.ClassConfig:
    return entry if isinstance(entry, str) else domain.ClassConfig(class_name=entry.class_name, config=entry.config)


def _space(spec: schema.Spec, every_lane: bool) -> domain.SearchSpace:
    batches: Sequence[int] = _axis(spec.search.batch_size)
    effective = spec.training.effective_batch_size
    if effective is not None:
        # A batch above the effective one is not what was asked for.
        batches = batches[: bisect_right(batches, effective)]
    lengths = spec.search.sequence_length
    # What percentiles stand for is known when the data was read.
    known = () if lengths is None or isinstance(lengths, Percentiles) else tuple(_axis(lengths))
    return domain.SearchSpace(
        batch_sizes=batches,
        sequence_lengths=None if lengths is None else known,
        most_buckets=spec.search.buckets,
        precisions=tuple(dict.fromkeys(spec.search.precision)),
        remats=tuple(spec.search.remat),
        objective=domain.Objective(spec.search.objective),
        resolution=spec.search.resolution,
        every_lane=every_lane,
        confirm_steps=spec.trial.confirm_steps,
    )
