"""The search without a session: run the trial that it asks for, until it asks for none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from oomtune.domain import Budget, Kind, Outcome, SearchSpace, Stage, Trial, TrialRecord
from oomtune.search import next_trial
from oomtune.trials.fake import FakeDevice


def search(
    space: SearchSpace,
    budget: Budget,
    run: Callable[[Trial], Outcome],
    *,
    history: Sequence[TrialRecord] = (),
    at_most: int = 200,
) -> list[TrialRecord]:
    """Return the records of a whole search, `history` first. Fail when it takes more than `at_most` trials."""
    records = list(history)
    while (trial := next_trial(space, budget, records)) is not None:
        records.append(TrialRecord(number=len(records) + 1, trial=trial, outcome=run(trial)))
        assert len(records) <= at_most, f"no end in sight for {space} within {budget}"
    return records


def play(space: SearchSpace, device: FakeDevice) -> list[TrialRecord]:
    """Return the records of a whole search on a fake device. At worst it bisects many lanes."""
    return search(space, device.budget, device.run, at_most=2000)


def out_of_memory(outcomes: Iterable[Outcome]) -> int:
    """Count the trials that ended in a real out-of-memory error, which a peak over the headroom is not."""
    return sum(_ran_out(outcome) for outcome in outcomes)


def _ran_out(outcome: Outcome) -> bool:
    last = outcome.further_failed
    after = last is not None and last.kind is Kind.DEVICE_OOM and last.peak_bytes is None
    return after or (outcome.kind is Kind.DEVICE_OOM and outcome.stage is not Stage.DONE)
