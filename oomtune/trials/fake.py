"""A device whose memory law is a formula: for tests, and for trying the search without a machine."""

from __future__ import annotations

from collections.abc import Callable

from oomtune.calibration import next_size
from oomtune.domain import Budget, Candidate, Outcome, Point, Purpose, RaisedError, Reply, Stage, Trial
from oomtune.trials.outcome import Ending, decide
from oomtune.trials.runner import TimeUp

Law = Callable[[Candidate], int]

_ERROR_BASES = ("ResourceExhaustedError", "OpError", "Exception", "BaseException", "object")


class FakeDevice:
    """Answers as a worker would on a device with `limit_bytes` where a candidate's peak is `law(candidate)`."""

    def __init__(
        self,
        *,
        limit_bytes: int,
        law: Law,
        headroom: float = 0.0,
        step_ms: Callable[[Candidate], float] = lambda candidate: 1.0 + candidate.batch_size / 10,
    ) -> None:
        self.budget = Budget(limit_bytes=limit_bytes, headroom=headroom)
        self.law = law
        self.step_ms = step_ms
        self.ran: list[Trial] = []

    def run(self, trial: Trial, *, within_s: float | None = None) -> Outcome:
        if within_s is not None and within_s <= 0:
            raise TimeUp
        self.ran.append(trial)
        reply = self._climb(trial) if trial.purpose is Purpose.CALIBRATE else self._steps(trial)
        return decide(trial, self.budget, Ending(reply=reply, exit_code=0))

    def close(self) -> None:
        """Nothing runs, so nothing has to end."""

    def _climb(self, trial: Trial) -> Reply:
        points: list[Point] = []
        while (size := next_size(trial.climb, points, self.budget.budget_bytes)) is not None:
            candidate = trial.candidate.lane.at(size)
            peak = self.law(candidate)
            if peak > self.budget.limit_bytes:
                return Reply(stage=Stage.TRAIN, points=tuple(points), batch_size=size, error=_out_of_memory(candidate))
            points.append(Point(batch_size=size, peak_bytes=peak, step_ms=self.step_ms(candidate)))
        return Reply(stage=Stage.DONE, points=tuple(points), peak_bytes=points[-1].peak_bytes, batch_size=size)

    def _steps(self, trial: Trial) -> Reply:
        # A confirm run is longer: where the law is noisy it meets the worse of two draws.
        peak = max(self.law(trial.candidate) for _ in range(2 if trial.purpose is Purpose.CONFIRM else 1))
        if peak > self.budget.limit_bytes:
            return Reply(stage=Stage.TRAIN, error=_out_of_memory(trial.candidate))
        steps = 20 if trial.purpose is Purpose.CONFIRM else 4
        return Reply(
            stage=Stage.DONE,
            peak_bytes=peak,
            step_ms=(self.step_ms(trial.candidate),) * steps,
            memory_after_step_bytes=(peak // 2,) * steps,
        )


def _out_of_memory(candidate: Candidate) -> RaisedError:
    return RaisedError(
        type_name="tensorflow.python.framework.errors_impl.ResourceExhaustedError",
        bases=_ERROR_BASES,
        message=f"OOM when allocating tensor with shape[{candidate.batch_size},1] and type float on "
        "/job:localhost/replica:0/task:0/device:CPU:0 by allocator bfc_cpu_allocator_for_gpu",
        traceback="",
    )
