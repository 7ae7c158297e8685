"""Having a worker do what is not a trial: list devices, look at a model, read the data."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from pydantic import TypeAdapter

from oomtune.domain import RaisedError
from oomtune.errors import DataUnreadable, TrialCrashed, WorkerBroken
from oomtune.trials.worker_host import WorkerHost

_T = TypeVar("_T")
_RAISED = TypeAdapter(RaisedError)


def order_document(word: Literal["trial", "describe", "inspect", "scan"], order: Any = None) -> bytes:
    """What a worker is told, whatever it is to do."""
    return json.dumps({"do": word, "order": TypeAdapter(Any).dump_python(order, mode="json")}).encode()


def ask(
    host: WorkerHost,
    word: Literal["describe", "inspect", "scan"],
    order: Any,
    answer: type[_T],
    *,
    timeout_s: float,
    watch: Callable[[bytes], None] | None = None,
) -> _T:
    """The worker's answer. What it raised is raised here as `TrialCrashed`; `watch` is shown what it notes."""
    ended = host.call(order_document(word, order), timeout_s=timeout_s, watch=watch)
    said = _whole(ended.reply)
    if said is None:
        last_words = ended.output_tail[-600:].strip()
        how = f"did not answer within {timeout_s:.0f} s" if ended.timed_out else "ended without an answer"
        raise WorkerBroken(f"the worker that was to {word} {how}", hint=last_words or "try: oomtune doctor")
    if said["error"] is not None:
        error = _RAISED.validate_python(said["error"])
        ours = "OomtuneError" in error.bases
        message = error.message if ours else f"{error.type_name.rsplit('.', 1)[-1]}: {error.message}"
        kind = DataUnreadable if "DataUnreadable" in error.bases else TrialCrashed
        raise kind(message, hint=error.hint, traceback=error.traceback)
    return TypeAdapter(answer).validate_python(said["value"])


def _whole(reply: bytes) -> dict[str, Any] | None:
    """The reply of a worker; None where it was ended before it had said it all."""
    try:
        said: dict[str, Any] = json.loads(reply)
    except ValueError:
        return None
    return said
