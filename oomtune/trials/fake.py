"""A device whose memory law is a formula: for tests, and for trying the search without a machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from oomtune.domain import (
    BucketTurns,
    Budget,
    Candidate,
    Climb,
    Confirm,
    Outcome,
    Point,
    Purpose,
    RaisedError,
    Reply,
    Search,
    Stage,
    Trial,
)
from oomtune.search.climb import next_further, next_size
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
        turns_need: float | None = 1.0,
        parameters: int | None = None,
    ) -> None:
        self.budget = Budget(limit_bytes=limit_bytes, headroom=headroom)
        self.law = law
        self.step_ms = step_ms
        self.turns_need = turns_need
        """What buckets need by turns, beside what the largest of them needs alone; None: they can't take turns."""
        self.parameters = parameters
        """How many weights its models have."""
        self.ran: list[Trial] = []

    def run(self, trial: Trial, *, within_s: float | None = None) -> Outcome:
        if within_s is not None and within_s <= 0:
            raise TimeUp
        self.ran.append(trial)
        return decide(trial, self.budget, Ending(reply=self._reply(trial), exit_code=0))

    def close(self) -> None:
        """Nothing runs, so nothing has to end."""

    def _reply(self, trial: Trial) -> Reply:
        match trial:
            case Climb():
                return self._climb(trial)
            case BucketTurns():
                return self._take_turns(trial)
            case Search() | Confirm():
                return self._go_further(trial, self._steps(trial, [trial.candidate]))

    def _climb(self, trial: Climb) -> Reply:
        points: list[Point] = []
        while (size := next_size(trial.sizes, points, self.budget.budget_bytes, every=trial.every_size)) is not None:
            candidate = trial.lane.at(size)
            peak = self.law(candidate)
            if peak > self.budget.limit_bytes:
                return Reply(stage=Stage.TRAIN, points=tuple(points), batch_size=size, error=_out_of_memory(candidate))
            points.append(Point(batch_size=size, peak_bytes=peak, step_ms=self.step_ms(candidate)))
        return Reply(stage=Stage.DONE, points=tuple(points), peak_bytes=points[-1].peak_bytes, batch_size=size)

    def _take_turns(self, trial: BucketTurns) -> Reply:
        if self.turns_need is None:
            return Reply(stage=Stage.BUILD, error=_one_length_only())
        candidates = [
            dataclasses.replace(trial.lane, sequence_length=length).at(size) for length, size in trial.buckets
        ]
        return self._steps(trial, candidates, times=self.turns_need)

    def _steps(self, trial: Trial, candidates: Sequence[Candidate], *, times: float = 1.0) -> Reply:
        # A confirm run is longer: where the law is noisy it meets the worse of two draws.
        draws = 2 if trial.purpose is Purpose.CONFIRM else 1
        peak = int(max(self.law(candidate) for candidate in candidates for _ in range(draws)) * times)
        if peak > self.budget.limit_bytes:
            return Reply(stage=Stage.TRAIN, error=_out_of_memory(trial.candidate))
        steps = 20 if trial.purpose is Purpose.CONFIRM else 4
        return Reply(
            stage=Stage.DONE,
            peak_bytes=peak,
            step_ms=(self.step_ms(trial.candidate),) * steps,
            memory_after_step_bytes=(peak // 2,) * steps,
            parameters=self.parameters,
        )

    def _go_further(self, trial: Search | Confirm, reply: Reply) -> Reply:
        """Run the larger sizes, if the candidate itself fitted."""
        if reply.error is not None or reply.peak_bytes is None:
            return reply
        points = [Point(batch_size=trial.candidate.batch_size, peak_bytes=reply.peak_bytes, step_ms=reply.step_ms[-1])]
        from_afar = trial.further_within_s is not None
        while (size := next_further(trial.further, points, self.budget.budget_bytes, from_afar=from_afar)) is not None:
            candidate = trial.candidate.lane.at(size)
            peak = self.law(candidate)
            if peak > self.budget.limit_bytes:
                error = _out_of_memory(candidate)
                return dataclasses.replace(reply, further=tuple(points[1:]), further_at=size, further_error=error)
            points.append(Point(batch_size=size, peak_bytes=peak, step_ms=self.step_ms(candidate)))
        return dataclasses.replace(reply, further=tuple(points[1:]))


def _one_length_only() -> RaisedError:
    return RaisedError(
        type_name="oomtune.errors.TrialCrashed",
        bases=("TrialCrashed", "OomtuneError", "Exception", "BaseException", "object"),
        message="the model takes one length only",
        traceback="",
    )


def _out_of_memory(candidate: Candidate) -> RaisedError:
    return RaisedError(
        type_name="tensorflow.python.framework.errors_impl.ResourceExhaustedError",
        bases=_ERROR_BASES,
        message=f"OOM when allocating tensor with shape[{candidate.batch_size},1] and type float on "
        "/job:localhost/replica:0/task:0/device:CPU:0 by allocator bfc_cpu_allocator_for_gpu",
        traceback="",
    )
