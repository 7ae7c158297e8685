"""Translate pydantic's errors for the user: file, line, dotted key, what would be accepted, the nearest known key."""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from oomtune.errors import Problem
from oomtune.spec.fields import nearest
from oomtune.spec.schema import Spec
from oomtune.spec.yaml_text import Document, KeyPath

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_PATTERNS = {
    r"^[^,]+$": "expected the name of a layer, without commas",
    r"\.py$": "expected a Python file, whose name ends in .py",
    r"\.(keras|h5|hdf5|json)$": "expected a file whose name ends in .keras, .h5, .hdf5 or .json",
}
_EXPECTED = {
    "int_type": "expected a whole number",
    "int_parsing": "expected a whole number",
    "int_from_float": "expected a whole number",
    "float_type": "expected a number",
    "bool_type": "expected true or false",
    "string_type": "expected text",
    "list_type": "expected a list",
    "dict_type": "expected a mapping",
    "model_type": "expected a mapping",
    "model_attributes_type": "expected a mapping",
}


def problems_of(error: ValidationError, document: Document) -> list[Problem]:
    """Return one problem for each wrong entry. The alternatives of one entry fail one by one; they become one problem
    that names all that would be accepted."""
    messages: dict[KeyPath, list[str]] = {}
    for detail in error.errors(include_url=False):
        path = _path(detail["loc"], document.values)
        messages.setdefault(path, []).append(_message(detail, path))
    return [document.problem(path, message) for path, several in messages.items() for message in _merged(several)]


def _merged(messages: list[str]) -> list[str]:
    messages = list(dict.fromkeys(messages))
    if len(messages) == 1 or not all(message.startswith("expected ") for message in messages):
        return messages
    accepted = [message.partition(";")[0].removeprefix("expected ") for message in messages]
    got = messages[0].partition(";")[2]
    return [f"expected {' or '.join(dict.fromkeys(accepted))}" + (f";{got}" if got else "")]


def _path(location: KeyPath, values: Any) -> KeyPath:
    """Return the keys in pydantic's location. A part that looks like a branch may be a key of the spec."""
    path: KeyPath = ()
    for part in location:
        is_key = isinstance(values, dict) and part in values
        if is_key or not _is_branch(part):
            path = (*path, part)
            values = values[part] if is_key or (isinstance(values, list) and isinstance(part, int)) else None
    return path


def _is_branch(part: str | int) -> bool:
    """Return True for the name of a union's alternative, such as `literal['auto']` or `constrained-int`. Those that our
    schema names are in angle brackets."""
    return isinstance(part, str) and (
        "[" in part or _is_ours(part) or part in {"int", "str", "bool", "float", "constrained-int", "constrained-float"}
    )


def _is_ours(part: str | int) -> bool:
    return isinstance(part, str) and part.startswith("<") and part.endswith(">")


def _message(detail: ErrorDetails, path: KeyPath) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        key, known = str(path[-1]), _keys_at(path[:-1])
        form = next((str(part) for part in detail["loc"] if _is_ours(part)), "")
        # A key of another form of the same entry, such as max beside percentiles.
        return f"{form.strip('<>')} and {key} exclude each other" if form and key in known else _unknown_key(key, known)
    if kind == "missing":
        return "this key is missing"
    if kind == "value_error":
        return str(context["error"])
    if kind in ("axis", "named", "layer", "size"):
        return f"{detail['msg']}; got {_shown(detail['input'])}"
    if kind == "literal_error":
        return _literal(context["expected"], detail["input"])
    return f"{_expected(kind, context, detail['msg'])}; got {_shown(detail['input'])}"


def _expected(kind: str, context: dict[str, Any], fallback: str) -> str:
    bounds = {
        "greater_than_equal": ("ge", "{} or more"),
        "greater_than": ("gt", "more than {}"),
        "less_than_equal": ("le", "{} or less"),
        "less_than": ("lt", "less than {}"),
        "too_short": ("min_length", "at least {} entry"),
        "too_long": ("max_length", "at most {} entries"),
        "string_too_short": ("min_length", "at least {} character"),
        "string_too_long": ("max_length", "at most {} characters"),
    }
    if kind in bounds:
        name, words = bounds[kind]
        return f"expected {words.format(_plain(context[name]))}"
    if kind == "string_pattern_mismatch":
        return _PATTERNS.get(context["pattern"], "expected package.module:function")
    return _EXPECTED.get(kind, fallback)


def _plain(bound: float) -> str:
    return str(int(bound)) if bound == int(bound) else str(bound)


def _literal(expected: str, got: object) -> str:
    accepted = expected.replace("'", "")
    words = [word.strip() for word in accepted.replace(" or ", ", ").split(",")]
    return f"expected {accepted}; got {_shown(got)}{nearest(str(got), words)}"


def _unknown_key(key: str, known: Iterable[str]) -> str:
    """Return `unknown key` with the nearest known key, or with all known keys if none is close."""
    known = list(known)
    all_known = f"; known here: {', '.join(known)}" if known else ""
    return f"unknown key{nearest(key, known) or all_known}"


def _keys_at(path: KeyPath) -> list[str]:
    """Return the known keys of the section at this path."""
    models: list[Any] = [Spec]
    for part in path:
        fields = [model.model_fields.get(part) for model in models if isinstance(part, str)]
        models = [inner for one in fields if one is not None for inner in _models_in(one.annotation)]
    return [name for model in models for name in model.model_fields]


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) in (Union, types.UnionType) or hasattr(annotation, "__metadata__"):
        return [inner for option in get_args(annotation) for inner in _models_in(option)]
    return []


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
