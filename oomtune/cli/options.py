"""Options that several commands share, what a shell completes for them, and their order: flag, environment, spec."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer


def complete_devices(incomplete: str) -> list[str]:
    return matching(incomplete, ("auto", "gpu", "cpu"))


def complete_objectives(incomplete: str) -> list[str]:
    from oomtune.domain import Objective

    return matching(incomplete, map(str, Objective))


def complete_gpus(incomplete: str) -> list[str]:
    from oomtune.devices.catalogue import cards

    return matching(incomplete, (card.short_name for card in cards()))


def matching(incomplete: str, values: Iterable[str]) -> list[str]:
    """Return the values that begin like this in any case, spelled as begun: a shell drops the others."""
    return [incomplete + value[len(incomplete) :] for value in values if value.lower().startswith(incomplete.lower())]


Device = Annotated[
    str | None,
    typer.Option(
        "--device", envvar="OOMTUNE_DEVICE", metavar="auto|gpu|cpu", help="The device to train on.",
        show_default=False, autocompletion=complete_devices,
    ),
]  # fmt: skip
MemoryLimit = Annotated[
    str | None,
    typer.Option(
        "--memory-limit", envvar="OOMTUNE_MEMORY_LIMIT", metavar="SIZE", help="The memory limit: 2GiB, 1500MB.",
        show_default=False,
    ),
]  # fmt: skip
Like = Annotated[
    str | None,
    typer.Option(
        "--like", envvar="OOMTUNE_LIKE", metavar="GPU", help="Use the memory limit of this card: T4, 'RTX 3090'.",
        show_default=False, autocompletion=complete_gpus,
    ),
]  # fmt: skip
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override one entry of the spec. Repeatable.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Show no progress, only the answer.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Show a line for each trial, and why it failed.")]
NoColor = Annotated[bool, typer.Option("--no-color", help="Use no colours. NO_COLOR does the same.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite files that oomtune did not write.")]
TensorBoard = Annotated[
    Path | None,
    typer.Option("--tensorboard", metavar="LOGDIR", help="Write HParams for TensorBoard.", show_default=False),
]


def choose_limit(context: typer.Context, memory_limit: str | None, like: str | None) -> tuple[str | None, str | None]:
    """Return `--memory-limit` and `--like`, less the one from the environment if the other is a flag."""
    if memory_limit is not None and like is not None:
        if _is_from_environment(context, "like"):
            return memory_limit, None
        if _is_from_environment(context, "memory_limit"):
            return None, like
    return memory_limit, like


def drop_environment(context: typer.Context, **values: str | None) -> tuple[str | None, ...]:
    """Return the values that are flags, and None for those from the environment."""
    return tuple(None if _is_from_environment(context, name) else value for name, value in values.items())


def _is_from_environment(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "ENVIRONMENT"
