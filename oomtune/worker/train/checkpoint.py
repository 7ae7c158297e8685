"""A checkpoint at an epoch's end, as training would write one: what it needs is part of what the trial measures."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oomtune.diagnosis import classify
from oomtune.domain import Finding, WorkOrder
from oomtune.units import format_bytes
from oomtune.worker.process.progress import Progress
from oomtune.worker.watch import holders
from oomtune.worker.watch import user_frames as users

if TYPE_CHECKING:
    import keras

_WHOLE, _WEIGHTS = "checkpoint.keras", "checkpoint.weights.h5"
_ROOM = 1.5  # times what is saved
# Errors of these classes may be about memory or not, and only what they say tells.
_SHARED = {"OpError", "JaxRuntimeError", "XlaRuntimeError"}


def save(model: keras.Model, order: WorkOrder, progress: Progress) -> None:
    """Write the model with its optimizer's state into the trial's folder, or its weights where that can't be done, and
    remove it again. What goes wrong is a finding, unless it is memory."""
    kept = [*model.weights, *(model.optimizer.variables if model.optimizer is not None else ())]
    size_bytes = sum(map(holders.size_bytes, kept))
    free_bytes = shutil.disk_usage(order.scratch).free
    if free_bytes < _ROOM * size_bytes:
        progress.found(
            Finding(
                kind="checkpoint",
                message=f"no checkpoint was tried: the model takes {format_bytes(size_bytes)}, and the temporary "
                f"folder has {format_bytes(free_bytes)} free",
                hint="set TMPDIR to a folder with more room",
            )
        )
        return
    folder = Path(order.scratch)
    failed = _failure(model.save, folder / _WHOLE)
    if failed is None:
        return
    weights_failed = _failure(model.save_weights, folder / _WEIGHTS)
    progress.found(_without_weights(weights_failed) if weights_failed is not None else _weights_only(failed))


def _failure(write: Callable[[Path], Any], path: Path) -> Exception | None:
    """What went wrong in writing the file, which is removed; raised when it is memory that ran out."""
    try:
        write(path)
    except Exception as error:  # noqa: BLE001 - a layer of the user's may raise anything when it is saved
        for one in _causes(error):
            if _is_memory(one):
                raise one from None
        return error
    finally:
        path.unlink(missing_ok=True)
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and those that it came from, which Keras may have wrapped."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _is_memory(error: BaseException) -> bool:
    """As a trial's ending is told: by its type where that says it, else by what it says."""
    kind = type(error)
    if isinstance(error, MemoryError):
        return True
    shared = _SHARED & {base.__name__ for base in kind.__mro__}
    return bool(shared) and classify(f"{kind.__module__}.{kind.__qualname__}: {error}").kind != "not_oom"


def _said(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"


def _without_weights(error: Exception) -> Finding:
    return Finding(
        kind="checkpoint",
        message=f"the weights can't be saved: {_said(error)}",
        where=users.raised_at(error),
        hint="a ModelCheckpoint would end training at its first epoch's end; try model.save_weights() by itself",
    )


def _weights_only(error: Exception) -> Finding:
    return Finding(
        kind="checkpoint",
        message=f"the model can't be saved whole, its weights can: {_said(error)}",
        where=users.raised_at(error),
        hint="use ModelCheckpoint(save_weights_only=True), or give the class a get_config() that tells how to make it",
    )
