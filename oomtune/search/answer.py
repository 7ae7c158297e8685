"""The answer that history gives so far: what ran and fitted, what counts as better, and the best of it."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

from oomtune.domain import (
    Budget,
    Candidate,
    Fit,
    FrontierPoint,
    Kind,
    Lane,
    Objective,
    Provenance,
    Purpose,
    SearchSpace,
    TrialRecord,
)
from oomtune.search.lanes import Evidence, lane_views, shows_fit
from oomtune.search.next_size import first_from
from oomtune.search.tuning import TUNING


def best_fit(space: SearchSpace, history: Sequence[TrialRecord]) -> Fit | None:
    """Return the answer so far: the largest candidate that fits. Where micro-batches have to add up to an effective
    batch, return the one that does so better, once it has run."""
    evidence = Evidence.for_answer(history)
    largest = largest_fit(space, evidence)
    if largest is None or space.effective_batch_size is None:
        return largest
    wanted = wanted_answer(space, evidence, largest.candidate)
    return next((fit for fit in all_fits(evidence) if fit.candidate == wanted), largest)


def largest_fit(space: SearchSpace, evidence: Evidence) -> Fit | None:
    """Return the best by the objective of all that ran and fitted."""
    lanes, refused = set(space.lanes()), refusals(evidence)
    fits = (fit for fit in all_fits(evidence) if fit.candidate.lane in lanes)
    return max(
        (fit for fit in fits if fit.candidate.precision not in refused), key=lambda fit: rank(space, fit), default=None
    )


def all_fits(evidence: Evidence) -> Iterator[Fit]:
    """Yield every candidate that ran and fitted and never failed, once, as its first run measured it."""
    failed = failed_candidates(evidence)
    by_lane: dict[Lane, list[int]] = {}
    for candidate in failed:
        by_lane.setdefault(candidate.lane, []).append(candidate.batch_size)
    confirms = {
        record.trial.candidate: record
        for record in evidence.records
        if record.trial.purpose is Purpose.CONFIRM and record.outcome.kind is Kind.FITS
    }
    settled = set(failed)
    for run in evidence.runs:
        candidate, peak_bytes = run.candidate, run.peak_bytes
        if peak_bytes is None or candidate in settled or not shows_fit(run, by_lane.get(candidate.lane, ())):
            continue
        settled.add(candidate)
        confirm = confirms.get(candidate)
        if confirm is not None and confirm.outcome.peak_bytes is not None:
            peak_bytes = confirm.outcome.peak_bytes
        yield Fit(candidate=candidate, peak_bytes=peak_bytes, step_ms=run.step_ms, confirmed_by=confirm)


def failed_candidates(evidence: Evidence) -> set[Candidate]:
    """Return the candidates that failed in a fresh process, or just after a smaller one without ever fitting alone."""
    fresh = [run for run in evidence.runs if run.provenance is Provenance.FRESH_PROCESS]
    after_another = {
        run.candidate for run in evidence.runs if run.provenance is Provenance.AFTER_NEIGHBOUR and not run.fits
    }
    fitted = {run.candidate for run in fresh if run.fits}
    return {run.candidate for run in fresh if not run.fits} | (after_another - fitted)


def refused_precisions(history: Sequence[TrialRecord]) -> dict[str, str]:
    """Return the precisions in which the loss stopped being a number, each with the error message."""
    return refusals(Evidence.for_answer(history))


def refusals(evidence: Evidence) -> dict[str, str]:
    return {
        record.trial.candidate.precision: record.outcome.error.message
        for record in evidence.records
        if record.refuses_precision and record.outcome.error is not None
    }


def frontier(space: SearchSpace, history: Sequence[TrialRecord], budget: Budget) -> tuple[FrontierPoint, ...]:
    """Return the largest batch that ran and fitted in each lane that was tried."""
    return tuple(
        FrontierPoint(lane=lane, batch_size=view.low, edge_known=view.edge_is_known(space.resolution))
        for lane, view in lane_views(space, history, budget).items()
        if view.low is not None
    )


def next_larger(
    space: SearchSpace, history: Sequence[TrialRecord], best: Candidate, budget: Budget
) -> tuple[Candidate, Kind] | None:
    """Return the smallest batch above the best, in its lane, that ran and did not fit, and how it ended."""
    view = lane_views(space, history, budget).get(best.lane)
    if view is None:
        return None
    endings = dict(view.failed)
    if view.climb_end is not None:
        endings.setdefault(view.climb_end, Kind.DEVICE_OOM)
    larger = min((batch for batch in endings if batch > best.batch_size), default=None)
    return None if larger is None else (best.lane.at(larger), endings[larger])


def rank(space: SearchSpace, fit: Fit) -> tuple[float, ...]:
    """Return a key that orders fits from worst to best; ties are broken as the objective says."""
    candidate = fit.candidate
    batch, length = candidate.batch_size, candidate.sequence_length or 0
    preference = (-space.precisions.index(candidate.precision), -space.remats.index(candidate.remat))
    match space.objective:
        case Objective.TOKENS:
            return (candidate.tokens, length, *preference)
        case Objective.BATCH_SIZE:
            return (batch, length, *preference)
        case Objective.SEQUENCE_LENGTH:
            return (length, batch, *preference)
        case Objective.THROUGHPUT:
            # By the search's own timing: a confirm run, timed otherwise, must not reorder what it was chosen from.
            return (batch / fit.step_ms if fit.step_ms else 0.0, candidate.tokens, *preference)


def batch_to_beat(space: SearchSpace, lane: Lane, best: Candidate) -> int | None:
    """Return the smallest batch with which this lane would be better than the best by more than the resolution."""
    length, best_length = lane.sequence_length or 0, best.sequence_length or 0
    slack = 1 + space.resolution
    match space.objective:
        case Objective.TOKENS:
            bound = best.tokens * slack / (lane.sequence_length or 1)
        case Objective.BATCH_SIZE if length > best_length:
            bound = best.batch_size
        case Objective.SEQUENCE_LENGTH if length > best_length:
            bound = space.batch_sizes[0]
        case Objective.SEQUENCE_LENGTH if length < best_length:
            return None
        case _:
            bound = best.batch_size * slack
    batch = first_from(space.batch_sizes, bound)
    if batch is not None and not _beats(space, lane.at(batch), best):
        batch = first_from(space.batch_sizes, batch + 1)
    return batch


def _beats(space: SearchSpace, candidate: Candidate, best: Candidate) -> bool:
    return rank(space, Fit(candidate=candidate, peak_bytes=0, step_ms=None)) > rank(
        space, Fit(candidate=best, peak_bytes=0, step_ms=None)
    )


def wanted_answer(space: SearchSpace, evidence: Evidence, largest: Candidate) -> Candidate:
    """Return what the answer should be where this is the largest candidate that fits."""
    if space.effective_batch_size is None:
        return largest
    failed = {other.batch_size for other in failed_candidates(evidence) if other.lane == largest.lane}
    effective, known = space.effective_batch_size, largest.batch_size
    return largest.lane.at(micro_batch(space.batch_sizes, effective, known, failed, space.resolution))


def micro_batch(
    axis: Sequence[int], effective: int, largest: int, failed: Collection[int] = (), resolution: float = 0.0
) -> int:
    """Return the size to train with so that micro-batches add up to `effective`.

    `largest` fits and is known to be the edge to within `resolution`. A size that divides `effective` is taken if one
    is not much smaller than `largest`, or lies in what the resolution leaves open above it. Otherwise it is the
    smallest size that needs no more micro-batches, so that their sum is the nearest not below `effective`.
    """
    wall = min((size for size in failed if size > largest), default=math.inf)
    most = int(min(largest / (1 - resolution), wall - 1))
    return next((size for size in _by_preference(axis, effective, largest, most) if size not in failed), largest)


def _by_preference(axis: Sequence[int], effective: int, largest: int, most: int) -> Iterator[int]:
    for size in range(most, math.ceil(TUNING.divisor_from * largest) - 1, -1):
        if effective % size == 0 and size in axis:
            yield size
    yield first_from(axis, effective / math.ceil(effective / largest)) or largest
