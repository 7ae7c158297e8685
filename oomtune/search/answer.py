"""What ran and fitted, and the best of it: the answer that history gives so far."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from oomtune.domain import Budget, Candidate, Fit, FrontierPoint, Kind, Lane, Purpose, SearchSpace, TrialRecord
from oomtune.search.accumulation import micro_batch
from oomtune.search.evidence import for_the_answer, lane_views, measured
from oomtune.search.objective import rank


def all_fits(history: Sequence[TrialRecord]) -> Iterator[Fit]:
    """Every candidate that ran and fitted and never failed, once, as the first run that showed it saw it."""
    history = for_the_answer(history)
    failed = failed_candidates(history)
    confirmed = {
        record.trial.candidate: record
        for record in history
        if record.trial.purpose is Purpose.CONFIRM and record.outcome.kind is Kind.FITS
    }
    seen = set(failed)
    by_lane: dict[Lane, list[int]] = {}
    for candidate in failed:
        by_lane.setdefault(candidate.lane, []).append(candidate.batch_size)
    for record in history:
        for candidate, peak_bytes, step_ms in measured(record, by_lane.get(record.trial.candidate.lane, ())):
            if candidate not in seen:
                seen.add(candidate)
                yield _fit(candidate, peak_bytes, step_ms, confirmed.get(candidate))


def failed_candidates(history: Sequence[TrialRecord]) -> set[Candidate]:
    """Those that did not fit in a process of their own; or right after a smaller one, and never alone."""
    alone: set[Candidate] = set()
    after_another: set[Candidate] = set()
    fitted: set[Candidate] = set()
    for record in for_the_answer(history):
        outcome = record.outcome
        if outcome.points:
            continue
        (fitted if outcome.kind is Kind.FITS else alone).add(record.ended_at)
        if outcome.further_failed is not None:
            after_another.add(record.trial.candidate.lane.at(outcome.further_failed.batch_size))
    return alone | (after_another - fitted)


def _fit(candidate: Candidate, peak_bytes: int, step_ms: float | None, confirm: TrialRecord | None) -> Fit:
    if confirm is not None and confirm.outcome.peak_bytes is not None:
        peak_bytes = confirm.outcome.peak_bytes
    return Fit(candidate=candidate, peak_bytes=peak_bytes, step_ms=step_ms, confirmed_by=confirm)


def largest_fit(space: SearchSpace, history: Sequence[TrialRecord]) -> Fit | None:
    """The best by the objective of all that ran and fitted."""
    lanes = set(space.lanes())
    refused = refused_precisions(history)
    fits = (fit for fit in all_fits(history) if fit.candidate.lane in lanes)
    return max(
        (fit for fit in fits if fit.candidate.precision not in refused), key=lambda fit: rank(space, fit), default=None
    )


def best_fit(space: SearchSpace, history: Sequence[TrialRecord]) -> Fit | None:
    """The answer so far: the largest that fits; where micro-batches are to add up, the one that does it better, once
    it has run."""
    largest = largest_fit(space, history)
    if largest is None or space.effective_batch_size is None:
        return largest
    wanted = wanted_answer(space, history, largest.candidate)
    return next((fit for fit in all_fits(history) if fit.candidate == wanted), largest)


def wanted_answer(space: SearchSpace, history: Sequence[TrialRecord], largest: Candidate) -> Candidate:
    """What the answer should be where this is the largest candidate that fits."""
    if space.effective_batch_size is None:
        return largest
    failed = {other.batch_size for other in failed_candidates(history) if other.lane == largest.lane}
    effective, known = space.effective_batch_size, largest.batch_size
    return largest.lane.at(micro_batch(space.batch_sizes, effective, known, failed, space.resolution))


def refused_precisions(history: Sequence[TrialRecord]) -> dict[str, str]:
    """The precisions in which the loss did not stay a number, and what was seen."""
    return {
        record.trial.candidate.precision: record.outcome.error.message
        for record in for_the_answer(history)
        if record.refuses_precision and record.outcome.error is not None
    }


def frontier(space: SearchSpace, history: Sequence[TrialRecord], budget: Budget) -> tuple[FrontierPoint, ...]:
    """The largest batch that ran and fitted in each lane that was tried."""
    return tuple(
        FrontierPoint(lane=lane, batch_size=view.low, edge_known=view.known(space.resolution))
        for lane, view in lane_views(space, history, budget).items()
        if view.low is not None
    )


def next_larger(
    space: SearchSpace, history: Sequence[TrialRecord], best: Candidate, budget: Budget
) -> tuple[Candidate, Kind] | None:
    """The smallest batch above the best, in its lane, that was run and did not fit."""
    view = lane_views(space, history, budget).get(best.lane)
    if view is None:
        return None
    ended = dict(view.failed)
    if view.wall is not None:
        ended.setdefault(view.wall, Kind.DEVICE_OOM)
    larger = [batch for batch in ended if batch > best.batch_size]
    return (best.lane.at(min(larger)), ended[min(larger)]) if larger else None
