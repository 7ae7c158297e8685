"""The options of a training script, and how often it trains, read from its text: it is not run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

# argparse's and click's ways to say what a script takes, and absl's, whose flags have names without dashes.
_TAKES = {"add_argument", "option", "argument"}
_FLAGS = "DEFINE_"
_REQUIRED_FLAGS = {"mark_flag_as_required", "mark_flags_as_required"}
_TAKES_NO_VALUE = {"store_true", "store_false", "count", "version", "help"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One thing that the script takes on its command line; a positional one has a name without dashes."""

    names: tuple[str, ...]
    required: bool = False
    choice: str | None = None
    """One of the values that it allows, where these are written down."""
    takes_several: bool = False
    """Does it take all words up to the next option?"""

    @property
    def name(self) -> str:
        return max(self.names, key=len)

    @property
    def is_positional(self) -> bool:
        return not self.name.startswith("-")


def options_of(text: str) -> list[Option]:
    """Every option that is written down. Raises `SyntaxError` when this is no Python."""
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    marked = {f"--{word}" for call in calls if _called(call) in _REQUIRED_FLAGS for word in _words(call)}
    found = [option for call in calls if (option := _option(call)) is not None]
    marked |= set(_first_of_groups(text, calls))
    return [replace(option, required=option.required or bool(marked & set(option.names))) for option in found]


def subcommands_of(text: str) -> list[str]:
    """The names of the commands that the script has within itself, of which one has to be given."""
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    return [name for call in calls if _called(call) == "add_parser" for name in list(_texts(call.args))[:1]]


def fits_of_one_model(text: str | bytes) -> int:
    """In how many places the script calls `fit` of one and the same name; of branches the one with most."""
    tree = ast.parse(text)
    owners = {owner for node in ast.walk(tree) if (owner := _fitted(node)) is not None}
    return max((_fits(tree, owner) for owner in owners), default=0)


def _fitted(node: ast.AST) -> str | None:
    """What the call of a `fit` is of, as it is written."""
    called = node.func if isinstance(node, ast.Call) else None
    return ast.unparse(called.value) if isinstance(called, ast.Attribute) and called.attr == "fit" else None


def _fits(node: ast.AST, owner: str) -> int:
    if isinstance(node, ast.If):
        branches = [sum(_fits(child, owner) for child in branch) for branch in (node.body, node.orelse)]
        return _fits(node.test, owner) + max(branches)
    own = int(_fitted(node) == owner)
    return own + sum(_fits(child, owner) for child in ast.iter_child_nodes(node))


def _first_of_groups(text: str, calls: list[ast.Call]) -> Iterator[str]:
    """Of options that exclude each other while one of them is required, the first."""
    groups: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Assign) and _is_required_group(node.value):
            groups |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    for call in calls:
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        if isinstance(owner, ast.Name) and owner.id in groups:
            groups.discard(owner.id)
            yield from list(_texts(call.args))[:1]


def _is_required_group(made: ast.expr) -> bool:
    if not isinstance(made, ast.Call) or _called(made) != "add_mutually_exclusive_group":
        return False
    return _constant(_keywords(made).get("required")) is True


def _option(call: ast.Call) -> Option | None:
    name, words = _called(call), list(_texts(call.args))
    keywords = _keywords(call)
    required = _constant(keywords.get("required")) is True
    if name.startswith(_FLAGS) and words:
        return Option(names=(f"--{words[0]}",), required=required)
    names = tuple(word for word in words if word.startswith("-"))
    if names:
        # Whatever it is called that takes them: words that begin with dashes are options.
        takes_value = _constant(keywords.get("action")) not in _TAKES_NO_VALUE
        return Option(
            names=names,
            required=required and takes_value,
            choice=_first(keywords.get("choices")),
            takes_several=_constant(keywords.get("nargs")) in ("+", "*"),
        )
    if name in _TAKES and words:
        optional = _constant(keywords.get("nargs")) in ("?", "*") or _constant(keywords.get("required")) is False
        return Option(names=(words[0],), required=not optional, choice=_first(keywords.get("choices")))
    return None


def _keywords(call: ast.Call) -> dict[str | None, ast.expr]:
    return {keyword.arg: keyword.value for keyword in call.keywords}


def _called(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _words(call: ast.Call) -> Iterator[str]:
    """The texts among the arguments, and in lists among them."""
    for argument in call.args:
        entries = argument.elts if isinstance(argument, ast.List | ast.Tuple) else [argument]
        yield from _texts(entries)


def _texts(nodes: list[ast.expr]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _constant(node: ast.expr | None) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def _first(choices: ast.expr | None) -> str | None:
    entries = choices.elts if isinstance(choices, ast.List | ast.Tuple) else []
    return str(entries[0].value) if entries and isinstance(entries[0], ast.Constant) else None
