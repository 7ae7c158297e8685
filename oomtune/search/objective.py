"""What counts as better, for each objective."""

from __future__ import annotations

from oomtune.domain import Candidate, Fit, Lane, Objective, SearchSpace
from oomtune.search.axis import first_from


def rank(space: SearchSpace, fit: Fit) -> tuple[float, ...]:
    """A key that orders fits from worst to best, ties broken as the objective says."""
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
    """The smallest batch with which this lane would be better than the best by more than `resolution`."""
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
