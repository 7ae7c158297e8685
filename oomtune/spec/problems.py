"""Translate pydantic's errors for the user: file, line, dotted key, accepted values and the nearest valid key."""

from __future__ import annotations

import types
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
    """Return one problem for each wrong entry.

    Pydantic reports each alternative of an entry separately. They become one problem that lists all of them.
    """
    messages: dict[KeyPath, list[str]] = {}
    for detail in error.errors(include_url=False):
        path = _path(detail["loc"], document.values)
        messages.setdefault(path, []).append(_message(detail, path))
    return [document.problem(path, message) for path, several in messages.items() for message in _merge(several)]


def _merge(messages: list[str]) -> list[str]:
    messages = list(dict.fromkeys(messages))
    if len(messages) == 1 or not all(message.startswith("expected ") for message in messages):
        return messages
    accepted = [message.partition(";")[0].removeprefix("expected ") for message in messages]
    got = messages[0].partition(";")[2]
    return [f"expected {' or '.join(dict.fromkeys(accepted))}" + (f";{got}" if got else "")]


def _path(location: KeyPath, values: Any) -> KeyPath:
    """Return the keys in pydantic's location, without the names of union branches. A key may look like a branch."""
    path: KeyPath = ()
    for part in location:
        is_key = isinstance(values, dict) and part in values
        if is_key or not _is_branch(part):
            path = (*path, part)
            values = values[part] if is_key or (isinstance(values, list) and isinstance(part, int)) else None
    return path


def _is_branch(part: str | int) -> bool:
    """Return True for the name of a union's alternative: pydantic's, such as `literal['auto']`, or our own tag."""
    names = {"int", "str", "bool", "float", "constrained-int", "constrained-float"}
    return isinstance(part, str) and ("[" in part or part in names or _is_own_tag(part))


def _is_own_tag(part: str | int) -> bool:
    return isinstance(part, str) and part.startswith("<") and part.endswith(">")


def _message(detail: ErrorDetails, path: KeyPath) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        return _unexpected_key(path, form=next((str(part) for part in detail["loc"] if _is_own_tag(part)), ""))
    if kind == "missing":
        return "this key is missing"
    if kind == "value_error":
        return str(context["error"])
    if kind in ("axis", "named", "layer", "size"):
        return f"{detail['msg']}; got {_shorten(detail['input'])}"
    if kind == "literal_error":
        return _literal(context["expected"], detail["input"])
    return f"{_expected(kind, context, detail['msg'])}; got {_shorten(detail['input'])}"


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
        return f"expected {words.format(_format_bound(context[name]))}"
    if kind == "string_pattern_mismatch":
        return _PATTERNS.get(context["pattern"], "expected package.module:function")
    return _EXPECTED.get(kind, fallback)


def _format_bound(bound: float) -> str:
    return str(int(bound)) if bound == int(bound) else str(bound)


def _literal(expected: str, got: object) -> str:
    accepted = expected.replace("'", "")
    words = [word.strip() for word in accepted.replace(" or ", ", ").split(",")]
    return f"expected {accepted}; got {_shorten(got)}{nearest(str(got), words)}"


def _unexpected_key(path: KeyPath, form: str) -> str:
    """Return `unknown key` with the nearest valid key, or with all valid keys if none is close."""
    key, valid_keys = str(path[-1]), _keys_at(path[:-1])
    if form and key in valid_keys:  # a key of another form of the same entry, such as max beside percentiles
        return f"{form.strip('<>')} and {key} exclude each other"
    all_keys = f"; known here: {', '.join(valid_keys)}" if valid_keys else ""
    return f"unknown key{nearest(key, valid_keys) or all_keys}"


def _keys_at(path: KeyPath) -> list[str]:
    """Return the valid keys of the section at this path."""
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


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
