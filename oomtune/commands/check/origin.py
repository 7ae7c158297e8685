"""The spec that a tuned config was found for, which people go on editing: what differs, and how it is taken over."""

from __future__ import annotations

import copy
import dataclasses
import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from oomtune.commands.check.options import CheckOptions
from oomtune.commands.check.subject import Subject
from oomtune.errors import SpecProblem
from oomtune.spec import Document, LoadedSpec, digest_of, load_spec, read_document

_MOST_DIFF_LINES = 40

Flag = tuple[str, Any]
"""What said it, and what."""
_Named = tuple[str, dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Edits:
    """Which of a tuned config and the spec that it was found for has been edited since, and what differs."""

    lines: tuple[str, ...] = ()
    file_edited: bool = False
    spec_edited: bool = False
    notices: tuple[str, ...] = ()


def edits_since(subject: Subject) -> Edits:
    """What was edited in the two files, without what flags had set when the answer was found. A tuned config does not
    depend on the other: that may also be gone, or no spec any more."""
    if subject.tuned is None:
        return Edits()
    evidence, source = subject.tuned.evidence, subject.loaded.source
    found_for, values = evidence.get("spec_sha256"), without_answer(subject.document)
    edited = found_for is not None and found_for != digest_of(values)
    if source is None or source == subject.path.resolve() or not source.is_file():
        return Edits(file_edited=edited)
    try:
        now = read_document(source)
    except SpecProblem as error:
        said = f"the spec that this was tuned from can't be compared with it: {error.problems[0]}"
        return Edits(file_edited=edited, notices=(said,))
    _set_alike(now, values, _overridden(subject))
    # What was edited comes second; where both were, that is the file that is checked.
    in_file, in_spec = (subject.path.name, values), (source.name, now.values)
    lines = _diff(in_spec, in_file) if edited else _diff(in_file, in_spec)
    return Edits(
        lines=lines, file_edited=edited, spec_edited=digest_of(now.values) != found_for if edited else bool(lines)
    )


def _diff(before: _Named, after: _Named) -> tuple[str, ...]:
    (old_name, old), (new_name, new) = before, after
    old_lines, new_lines = (yaml.safe_dump(values, sort_keys=True).splitlines() for values in (old, new))
    lines = tuple(difflib.unified_diff(old_lines, new_lines, fromfile=old_name, tofile=new_name, lineterm="", n=0))
    more = len(lines) - _MOST_DIFF_LINES
    return lines[:_MOST_DIFF_LINES] + ((f"... and {more} more lines",) if more > 0 else ())


def without_answer(document: Document) -> dict[str, Any]:
    return {key: value for key, value in document.values.items() if key != "tuned"}


def as_edited(subject: Subject, options: CheckOptions) -> Subject:
    """The same with the spec that people have edited in place of the one in the file, where that is to be searched anew
    and they have not edited the tuned config itself."""
    edits, source = edits_since(subject), subject.loaded.source
    if not options.update or source is None or not edits.spec_edited or edits.file_edited:
        return subject
    loaded = load_edited(subject, source, options, options.flags())
    return dataclasses.replace(subject, loaded=loaded, taken_over=source)


def load_edited(subject: Subject, source: Path, options: CheckOptions, flags: Mapping[str, Flag]) -> LoadedSpec:
    """The spec as people have edited it since, with what was said beside it when it was probed and what is now."""
    now, values = read_document(source), without_answer(subject.document)
    said_now = {setting.partition("=")[0] for setting in options.settings}
    then: dict[str, Flag] = {}
    for key in _overridden(subject):
        there, value = _entry(values, key)
        if there and key not in said_now and _override(now, key, value):
            then[key] = ("a flag of its probe", value)
    return load_spec(source, settings=options.settings, flags={**then, **flags})


def edited_here(subject: Subject) -> list[str]:
    """The dotted keys of what was edited in the tuned config itself: an update searches and keeps that, and it is no
    edit of the spec later on."""
    source, values = subject.loaded.source, without_answer(subject.document)
    edits = edits_since(subject)
    if source is None or not (edits.file_edited and edits.lines):
        return []
    now = read_document(source)
    _set_alike(now, values, _overridden(subject))
    return list(_different(values, now.values))


def _different(one: Any, other: Any, at: tuple[str, ...] = ()) -> Iterator[str]:
    """The dotted keys at which two specs differ, as deep as there is something to compare."""
    pairs: list[tuple[Any, Any, Any]] = []
    if isinstance(one, dict) and isinstance(other, dict):
        pairs = [(key, one.get(key), other.get(key)) for key in {**one, **other}]
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = [(place, *both) for place, both in enumerate(zip(one, other, strict=True))]
    if not pairs or any("." in str(key) for key, *_ in pairs):  # such a key has no dotted form
        pairs = []
        if one != other:
            yield ".".join(at)
    for key, ours, theirs in pairs:
        yield from _different(ours, theirs, (*at, str(key)))


def _overridden(subject: Subject) -> list[str]:
    """The dotted keys that were not the spec's own when the answer was found."""
    keys = subject.tuned.evidence.get("overridden") if subject.tuned is not None else None
    return [str(key) for key in keys or ()]


def _set_alike(document: Document, values: dict[str, Any], keys: Sequence[str]) -> None:
    for key in keys:
        there, value = _entry(values, key)
        if there:
            _override(document, key, value)
        else:
            document.remove(key)


def _override(document: Document, key: str, value: Any) -> bool:
    """Set an entry as a flag had, unless its list is shorter now: then there is nothing to set."""
    try:
        document.override(key, copy.deepcopy(value), "a flag")
    except LookupError:
        return False
    return True


def _entry(values: Any, key: str) -> tuple[bool, Any]:
    """Is there such an entry, and what is it?"""
    for part in key.split("."):
        if isinstance(values, dict) and part in values:
            values = values[part]
        elif isinstance(values, list) and part.isdecimal() and int(part) < len(values):
            values = values[int(part)]
        else:
            return False, None
    return True, values
