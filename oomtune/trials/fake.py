"""A device whose memory follows a formula, for tests and for trying out the search."""

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
from oomtune.search.climb import climb, go_further
from oomtune.trials.outcome import Ending, decide
from oomtune.trials.runner import TimeUp

Law = Callable[[Candidate], int]

_STEPS, _CONFIRM_STEPS = 4, 20


class FakeDevice:
    """Answers like a worker on a device with `limit_bytes`, where a candidate's peak is `law(candidate)`.

    `turns_factor` multiplies the peak of buckets that take turns; None means a model that can't train on several
    lengths. `parameters` is the number of weights of every model.
    """

    def __init__(
        self,
        *,
        limit_bytes: int,
        law: Law,
        headroom: float = 0.0,
        step_ms: Callable[[Candidate], float] = lambda candidate: 1.0 + candidate.batch_size / 10,
        turns_factor: float | None = 1.0,
        parameters: int | None = None,
    ) -> None:
        self.budget = Budget(limit_bytes=limit_bytes, headroom=headroom)
        self.law = law
        self.step_ms = step_ms
        self.turns_factor = turns_factor
        self.parameters = parameters
        self.ran: list[Trial] = []

    def run(self, trial: Trial, *, within_s: float | None = None) -> Outcome:
        if within_s is not None and within_s <= 0:
            raise TimeUp
        self.ran.append(trial)
        return decide(trial, self.budget, Ending(reply=self._reply(trial), exit_code=0))

    def close(self) -> None:
        """Do nothing: no process runs."""

    def _reply(self, trial: Trial) -> Reply:
        match trial:
            case Climb():
                return self._climb(trial)
            case BucketTurns():
                return self._take_turns(trial)
            case Search() | Confirm():
                return self._go_further(trial, self._steps(trial, [trial.candidate]))

    def _climb(self, trial: Climb) -> Reply:
        tried: list[Candidate] = []
        points = climb(
            trial.sizes,
            lambda size: self._run_size(trial.lane.at(size), tried),
            budget_bytes=self.budget.budget_bytes,
            every=trial.every_size,
        )
        if len(points) < len(tried):
            last = tried[-1]
            return Reply(stage=Stage.TRAIN, points=points, batch_size=last.batch_size, error=_out_of_memory(last))
        return Reply(stage=Stage.DONE, points=points, peak_bytes=points[-1].peak_bytes)

    def _run_size(self, candidate: Candidate, tried: list[Candidate]) -> Point | None:
        tried.append(candidate)
        peak = self.law(candidate)
        if peak > self.budget.limit_bytes:
            return None
        return Point(batch_size=candidate.batch_size, peak_bytes=peak, step_ms=self.step_ms(candidate))

    def _take_turns(self, trial: BucketTurns) -> Reply:
        if self.turns_factor is None:
            return Reply(stage=Stage.BUILD, error=_one_length_only())
        lane = trial.lane
        candidates = [dataclasses.replace(lane, sequence_length=length).at(size) for length, size in trial.buckets]
        return self._steps(trial, candidates, times=self.turns_factor)

    def _steps(self, trial: Trial, candidates: Sequence[Candidate], *, times: float = 1.0) -> Reply:
        # A confirming trial is longer: where the law is noisy, it meets the worse of two draws.
        draws = 2 if trial.purpose is Purpose.CONFIRM else 1
        peak_bytes = int(max(self.law(candidate) for candidate in candidates for _ in range(draws)) * times)
        if peak_bytes > self.budget.limit_bytes:
            return Reply(stage=Stage.TRAIN, error=_out_of_memory(trial.candidate))
        steps = _CONFIRM_STEPS if trial.purpose is Purpose.CONFIRM else _STEPS
        return Reply(
            stage=Stage.DONE,
            peak_bytes=peak_bytes,
            step_ms=(self.step_ms(trial.candidate),) * steps,
            memory_after_step_bytes=(peak_bytes // 2,) * steps,
            parameters=self.parameters,
        )

    def _go_further(self, trial: Search | Confirm, reply: Reply) -> Reply:
        if reply.error is not None or reply.peak_bytes is None:
            return reply
        tried: list[Candidate] = []
        further = go_further(
            trial.further,
            Point(batch_size=trial.candidate.batch_size, peak_bytes=reply.peak_bytes, step_ms=reply.step_ms[-1]),
            lambda size: self._run_size(trial.candidate.lane.at(size), tried),
            budget_bytes=self.budget.budget_bytes,
            from_afar=trial.further_within_s is not None,
        )
        if len(further) == len(tried):
            return dataclasses.replace(reply, further=further)
        last = tried[-1]
        return dataclasses.replace(
            reply, further=further, further_at=last.batch_size, further_error=_out_of_memory(last)
        )


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
        bases=("ResourceExhaustedError", "OpError", "Exception", "BaseException", "object"),
        message=f"OOM when allocating tensor with shape[{candidate.batch_size},1] and type float on "
        "/job:localhost/replica:0/task:0/device:CPU:0 by allocator bfc_cpu_allocator_for_gpu",
        traceback="",
    )
