"""Writes a checkpoint at the end of an epoch, as training would, so that its memory is part of the measurement."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oomtune.diagnosis import classify
from oomtune.domain import Finding, WorkOrder
from oomtune.units import format_bytes
from oomtune.worker.process.progress import Progress
from oomtune.worker.watch import user_frames
from oomtune.worker.watch.holders import size_bytes

if TYPE_CHECKING:
    import keras

_MODEL_FILE, _WEIGHTS_FILE = "checkpoint.keras", "checkpoint.weights.h5"
# A checkpoint may need this many times the size of the model.
_DISK_FACTOR = 1.5
# Only the message shows whether an error of these classes is about memory.
_AMBIGUOUS = {"OpError", "JaxRuntimeError", "XlaRuntimeError"}


def save(model: keras.Model, order: WorkOrder, progress: Progress) -> None:
    """Save the model with its optimizer state into the trial's folder, or else only its weights; then remove the file.

    Report a failure as a finding, but raise if memory runs out.
    """
    variables = [*model.weights, *(model.optimizer.variables if model.optimizer is not None else ())]
    model_bytes = sum(map(size_bytes, variables))
    free_bytes = shutil.disk_usage(order.scratch).free
    if free_bytes < _DISK_FACTOR * model_bytes:
        message = (
            f"no checkpoint was tried: the model takes {format_bytes(model_bytes)}, and the temporary folder has "
            f"{format_bytes(free_bytes)} free"
        )
        progress.add_finding(Finding(kind="checkpoint", message=message, hint="set TMPDIR to a folder with more room"))
        return
    folder = Path(order.scratch)
    model_error = _try_to_write(model.save, folder / _MODEL_FILE)
    if model_error is None:
        return
    weights_error = _try_to_write(model.save_weights, folder / _WEIGHTS_FILE)
    if weights_error is None:
        finding = Finding(
            kind="checkpoint",
            message=f"the weights can be saved, but not the whole model: {_first_line(model_error)}",
            where=user_frames.raised_at(model_error),
            hint="use ModelCheckpoint(save_weights_only=True), or give the class a get_config() that returns its "
            "constructor's arguments",
        )
    else:
        finding = Finding(
            kind="checkpoint",
            message=f"the weights can't be saved: {_first_line(weights_error)}",
            where=user_frames.raised_at(weights_error),
            hint="a ModelCheckpoint would end training after its first epoch; try model.save_weights() by itself",
        )
    progress.add_finding(finding)


def _try_to_write(write: Callable[[Path], Any], path: Path) -> Exception | None:
    """Write the file and remove it again. Return the error, if any; raise if memory ran out."""
    try:
        write(path)
    except Exception as error:  # noqa: BLE001 - the user's layers may raise anything while they are saved
        for cause in _causes(error):
            if _is_memory_error(cause):
                raise cause from None
        return error
    finally:
        path.unlink(missing_ok=True)
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error and its causes, because Keras may have wrapped the original."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _is_memory_error(error: BaseException) -> bool:
    """Return whether memory ran out. The type decides, or the message if the type is ambiguous."""
    if isinstance(error, MemoryError):
        return True
    kind = type(error)
    is_ambiguous = not _AMBIGUOUS.isdisjoint(base.__name__ for base in kind.__mro__)
    return is_ambiguous and classify(f"{kind.__module__}.{kind.__qualname__}: {error}").kind != "not_oom"


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"
