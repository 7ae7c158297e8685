"""From a spec file and its overrides to a `ProbeSpec`, or to every problem of the file at once."""

from __future__ import annotations

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
from oomtune.spec import schema
from oomtune.spec.dataset import dataset_spec, wrong_in_dataset
from oomtune.spec.model import is_text_to_tokens, model_spec, wrong_in_model
from oomtune.spec.problems import problems_of
from oomtune.spec.search import search_space, wrong_in_search
from oomtune.spec.sections import Percentiles
from oomtune.spec.text import Document, Path_, entry_at, parse_value, read_document
from oomtune.spec.training import training_spec, wrong_in_training

_LENGTH = "sequence_length"
_LIMITS = ("device.like", "device.memory_limit")
"""Two ways to set the limit: a flag that says it in one way beats the other too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSpec:
    """The spec as types, and as the plain values it was made from (without an earlier answer)."""

    path: Path
    spec: domain.ProbeSpec
    values: dict[str, Any]
    was_tuned: bool
    document: Document
    from_file: bool = True
    """Is `path` a file? A spec that was given as values is only taken for one."""
    source: Path | None = None
    """The file that people edit: this one, or for a tuned config the spec that it was found for, if it names one."""
    overridden: tuple[str, ...] = ()
    """The dotted keys whose values are not that file's own: flags set them, now or when the answer was found, or they
    were edited in the tuned config."""

    @property
    def sha256(self) -> str:
        return digest_of(self.values)

    def place(self, key: str) -> str:
        """Where the entry with this dotted key was written: the file and line, or the flag that set it."""
        parts = re.findall(r"[^.\[\]]+", key)
        return self.document.place(tuple(int(part) if part.isdecimal() else part for part in parts))


def digest_of(values: Mapping[str, Any]) -> str:
    """What tells two specs apart, whatever their files look like."""
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()


def load_spec(
    source: str | Path | Mapping[str, Any],
    *,
    settings: Sequence[str] = (),
    flags: Mapping[str, tuple[str, Any]] | None = None,
    every_lane: bool = False,
) -> LoadedSpec:
    """Read a spec. `settings` are `key.path=value` texts; `flags` map a dotted key to the flag's name and value."""
    document, path = _document(source)
    overridden = [_apply_setting(document, setting) for setting in settings]
    for key, (flag, value) in (flags or {}).items():
        if key in _LIMITS:
            overridden += _LIMITS
            for way in _LIMITS:
                document.remove(way)
        overridden.append(key)
        document.override(key, value, flag)
    tuned = document.values.get("tuned")
    folder = path.resolve().parent
    if isinstance(tuned, dict) and isinstance(tuned.get("folder"), str):
        # A tuned config written elsewhere says where its spec was, so that data and builders are still found.
        folder = (folder / tuned["folder"]).resolve()
    parsed = _validate(document, folder)
    document.values.pop("tuned", None)
    spec = _to_domain(parsed, path, folder, every_lane)
    came_from, before = _origin(tuned, path) if tuned is not None else (path.resolve(), [])
    return LoadedSpec(
        path=path,
        spec=spec,
        values=document.values,
        was_tuned=tuned is not None,
        document=document,
        from_file=not isinstance(source, Mapping),
        source=None if isinstance(source, Mapping) else came_from,
        overridden=tuple(dict.fromkeys([*before, *overridden])),
    )


def _origin(tuned: Any, path: Path) -> tuple[Path | None, list[str]]:
    """The spec that a tuned config names as its own, and what of it flags had overridden."""
    spec, overridden = entry_at(tuned, "evidence", "spec"), entry_at(tuned, "evidence", "overridden")
    source = (path.resolve().parent / spec).resolve() if isinstance(spec, str) else None
    return source, [str(key) for key in overridden] if isinstance(overridden, list) else []


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


def _apply_setting(document: Document, setting: str) -> str:
    """Override one entry, and say which."""
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
    if entry_at(document.values, "search", _LENGTH) is None:
        # Elsewhere in a dataset it may be the name of a column.
        for section in (("model",), ("dataset", "synthetic"), ("dataset", "text")):
            for path in _mentions(entry_at(document.values, *section), section):
                yield _problem(document, path, "stands for search.sequence_length, which is not set")
    elif is_text_to_tokens(file := entry_at(document.values, "model", "keras_file"), folder):
        message = f"{Path(file).name} takes text and makes tokens of it itself: it has no length to search"
        hint = "leave this out, and every text is trained on as long as it is"
        yield _problem(document, ("search", _LENGTH), f"{message}; {hint}")


def _mentions(value: Any, path: Path_) -> Iterator[Path_]:
    """The paths at which the word `sequence_length` stands for a value."""
    if value == _LENGTH:
        yield path
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in entries:
        yield from _mentions(entry, (*path, key))


def _between_sections(spec: schema.Spec, document: Document) -> Iterator[Problem]:
    yield from _between_model_and_the_rest(spec, document)
    for path, message in (*wrong_in_search(spec), *wrong_in_training(spec)):
        yield _problem(document, path, message)


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
    told = any("{precision}" in str(arg) for arg in model.script.args)
    if len(set(spec.search.precision)) > 1 and not told:
        message = "expected one, as {precision} is in none of model.script.args: the script could not be told which"
        yield _problem(document, ("search", "precision"), message)
    for word, axis in (("batch_size", spec.search.batch_size), (_LENGTH, spec.search.sequence_length)):
        named = any(f"{{{word}}}" in str(arg) for arg in model.script.args)
        if axis is not None and not named:
            message = f"expected {{{word}}} in one of them, for the {word} under trial: --size {{{word}}}"
            yield _problem(document, ("model", "script", "args"), message)
        if axis is None and named:
            message = f"{{{word}}} needs search.{word}, which is not set: --set 'search.{word}=[64, 128]', or in a spec"
            yield _problem(document, ("model", "script", "args"), message)


def _to_domain(spec: schema.Spec, path: Path, folder: Path, every_lane: bool) -> domain.ProbeSpec:
    lengths = spec.search.sequence_length
    return domain.ProbeSpec(
        name=spec.name or path.name.removesuffix(".yaml").removesuffix(".yml").removesuffix(".tuned"),
        folder=str(folder),
        model=model_spec(spec.model),
        dataset=None if spec.dataset is None else dataset_spec(spec.dataset),
        training=training_spec(spec),
        space=search_space(spec, every_lane),
        device=domain.DeviceRequest(
            kind=spec.device.kind,
            memory_limit_bytes=None if spec.device.memory_limit == "auto" else spec.device.memory_limit,
            like=spec.device.like,
            headroom=spec.device.headroom,
            allocator=spec.device.allocator,
            memory_growth=spec.device.memory_growth,
        ),
        trial=domain.TrialSettings(
            warmup_steps=spec.trial.warmup_steps,
            steps=spec.trial.steps,
            confirm_steps=spec.trial.confirm_steps,
            timeout_s=spec.trial.timeout,
        ),
        length_percentiles=tuple(lengths.percentiles) if isinstance(lengths, Percentiles) else (),
        length_multiple_of=lengths.multiple_of if isinstance(lengths, Percentiles) else 1,
        min_sequence_length=spec.search.min_sequence_length or 1,
        min_batch_size=spec.search.min_batch_size,
    )
