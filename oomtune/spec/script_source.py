"""Read the options of a training script and its calls of `fit` from the source, without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

# How argparse and click declare an argument. absl's flags have their own prefix, and names without dashes.
_DECLARATIONS = {"add_argument", "option", "argument"}
_FLAGS = "DEFINE_"
_REQUIRED_FLAGS = {"mark_flag_as_required", "mark_flags_as_required"}
_VALUELESS = {"store_true", "store_false", "count", "version", "help"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One command-line argument of the script. A positional argument has a name without dashes."""

    names: tuple[str, ...]
    required: bool = False
    choice: str | None = None
    """The first of its allowed values, if the source lists them."""
    takes_several: bool = False
    """Whether it takes all words up to the next option."""

    @property
    def name(self) -> str:
        return max(self.names, key=len)

    @property
    def is_positional(self) -> bool:
        return not self.name.startswith("-")


def options_of(text: str) -> list[Option]:
    """Return every option in the source. Raise `SyntaxError` if it is not Python."""
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    marked = {f"--{word}" for call in calls if _function_name(call) in _REQUIRED_FLAGS for word in _strings_in(call)}
    options = [option for call in calls if (option := _option(call)) is not None]
    marked |= set(_first_of_groups(text, calls))
    return [replace(option, required=option.required or bool(marked & set(option.names))) for option in options]


def subcommands_of(text: str) -> list[str]:
    """Return the names of the script's subcommands."""
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    return [name for call in calls if _function_name(call) == "add_parser" for name in list(_strings(call.args))[:1]]


def fits_of_one_model(text: str | bytes) -> int:
    """Return the largest number of `fit` calls on one name. Of an `if`, only the branch with the most calls counts."""
    tree = ast.parse(text)
    owners = {owner for node in ast.walk(tree) if (owner := _fit_owner(node)) is not None}
    return max((_fits(tree, owner) for owner in owners), default=0)


def _fit_owner(node: ast.AST) -> str | None:
    """Return the expression whose `fit` this node calls, or None."""
    function = node.func if isinstance(node, ast.Call) else None
    return ast.unparse(function.value) if isinstance(function, ast.Attribute) and function.attr == "fit" else None


def _fits(node: ast.AST, owner: str) -> int:
    if isinstance(node, ast.If):
        branches = [sum(_fits(child, owner) for child in branch) for branch in (node.body, node.orelse)]
        return _fits(node.test, owner) + max(branches)
    own = int(_fit_owner(node) == owner)
    return own + sum(_fits(child, owner) for child in ast.iter_child_nodes(node))


def _first_of_groups(text: str, calls: list[ast.Call]) -> Iterator[str]:
    """Yield the first option of each required group of options that exclude each other."""
    groups: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Assign) and _is_required_group(node.value):
            groups |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    for call in calls:
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        if isinstance(owner, ast.Name) and owner.id in groups:
            groups.discard(owner.id)
            yield from list(_strings(call.args))[:1]


def _is_required_group(value: ast.expr) -> bool:
    if not isinstance(value, ast.Call) or _function_name(value) != "add_mutually_exclusive_group":
        return False
    return _constant(_keywords(value).get("required")) is True


def _option(call: ast.Call) -> Option | None:
    name, words = _function_name(call), list(_strings(call.args))
    keywords = _keywords(call)
    required = _constant(keywords.get("required")) is True
    if name.startswith(_FLAGS) and words:
        return Option(names=(f"--{words[0]}",), required=required)
    names = tuple(word for word in words if word.startswith("-"))
    if names:
        # A call of any function that takes words with leading dashes declares an option.
        takes_value = _constant(keywords.get("action")) not in _VALUELESS
        return Option(
            names=names,
            required=required and takes_value,
            choice=_first(keywords.get("choices")),
            takes_several=_constant(keywords.get("nargs")) in ("+", "*"),
        )
    if name in _DECLARATIONS and words:
        optional = _constant(keywords.get("nargs")) in ("?", "*") or _constant(keywords.get("required")) is False
        return Option(names=(words[0],), required=not optional, choice=_first(keywords.get("choices")))
    return None


def _keywords(call: ast.Call) -> dict[str | None, ast.expr]:
    return {keyword.arg: keyword.value for keyword in call.keywords}


def _function_name(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _strings_in(call: ast.Call) -> Iterator[str]:
    """Yield the strings among the arguments, and in lists among them."""
    for argument in call.args:
        entries = argument.elts if isinstance(argument, ast.List | ast.Tuple) else [argument]
        yield from _strings(entries)


def _strings(nodes: list[ast.expr]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _constant(node: ast.expr | None) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def _first(choices: ast.expr | None) -> str | None:
    entries = choices.elts if isinstance(choices, ast.List | ast.Tuple) else []
    return str(entries[0].value) if entries and isinstance(entries[0], ast.Constant) else None
