"""A climb whose sizes each run in a process of their own: for training that can't be begun twice in one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from oomtune.domain import Climb, Point, RaisedError, Reply, Stage, WorkOrder
from oomtune.search.climb import next_size
from oomtune.worker.process.progress import Progress


def climb(order: WorkOrder, trial: Climb, progress: Progress, run: Callable[[WorkOrder], Reply]) -> RaisedError | None:
    """Climb with `run`, until enough was seen or a size ended in the error that is returned."""
    budget_bytes = order.budget.budget_bytes
    while (size := next_size(trial.sizes, progress.points, budget_bytes, every=trial.every_size)) is not None:
        progress.batch_size = size
        progress.note(progress.reply(None))
        alone = dataclasses.replace(trial, sizes=(size,))
        reply = run(dataclasses.replace(order, trial=alone))
        progress.stage = reply.stage
        progress.allocator = reply.allocator
        if reply.error is not None:
            return reply.error
        peak_bytes = reply.peak_bytes or 0
        progress.peak_bytes = peak_bytes
        progress.step_ms.extend(reply.step_ms)
        step_ms = min(reply.step_ms, default=0.0)
        progress.points.append(Point(batch_size=size, peak_bytes=peak_bytes, step_ms=step_ms))
    progress.stage = Stage.DONE
    return None
