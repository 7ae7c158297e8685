"""Which lane to work on, and when the answer is known.

Only lanes that may still beat the best so far are run. Then the best is confirmed, and a failed confirm is one more
line of history.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from oomtune.domain import Budget, Climb, Confirm, Fit, Lane, LaneTrial, Objective, Search, SearchSpace, TrialRecord
from oomtune.search.accumulation import may_fit_whole
from oomtune.search.answer import all_fits, largest_fit, refused_precisions, wanted_answer
from oomtune.search.axis import first_from, settled
from oomtune.search.contenders import Contender, contending_lanes, worth_running
from oomtune.search.curve import lane_lines
from oomtune.search.evidence import LaneView, lane_views
from oomtune.search.forecast.cost import full_length_pays
from oomtune.search.step import further_batches, next_batch

# What other lanes say of one is too vague to shoot at its edge when it may be off by this much: the lane climbs.
_VAGUE = 0.04
# When all that is said of the lanes not yet run is this vague, the shortest sequence teaches most.
_FAR = 0.1
# Where a climb begins in a lane that others have told of: this share of the edge, if they are right.
_FOOTHOLD = 0.4
# The sizes that a climb may choose among lie this close.
_RUNG = 1.02


def next_trial(
    space: SearchSpace, budget: Budget, history: Sequence[TrialRecord], *, beside: Sequence[Lane] = ()
) -> LaneTrial | None:
    """The trial that history calls for; None when the answer is known and confirmed, or nothing fits.

    The lanes `beside` the space are not searched; what ran in them tells of those that are.
    """
    for part in _parts(space, history):
        trial = _next_in(part, budget, history, beside)
        if trial is not None or largest_fit(part, history) is not None:
            return trial
    return None


def _parts(space: SearchSpace, history: Sequence[TrialRecord]) -> Iterator[SearchSpace]:
    """The space of one optimizer after the other, without the precisions that were refused."""
    refused = refused_precisions(history)
    precisions = tuple(precision for precision in space.precisions if precision not in refused)
    if precisions:
        for optimizer in space.optimizers:
            yield _shared_resolution(replace(space, precisions=precisions, optimizers=(optimizer,)))


def _shared_resolution(space: SearchSpace) -> SearchSpace:
    """Where lanes compete for tokens, half of the resolution is left to the choice of the lane and half to the batch in
    it: what the two give away adds up. Micro-batches are chosen by what they add up to, not to the last percent."""
    adds_up = space.objective is Objective.TOKENS and not space.every_lane and space.effective_batch_size is None
    several = len(space.lanes()) > 1
    return replace(space, resolution=space.resolution / 2) if adds_up and several else space


def _next_in(
    space: SearchSpace, budget: Budget, history: Sequence[TrialRecord], beside: Sequence[Lane]
) -> LaneTrial | None:
    """The same, where nothing is left of the space but what may be the answer."""
    views = lane_views(space, history, budget)
    best = largest_fit(space, history)
    known = lane_views(space, history, budget, beside) if beside else views
    contenders = contending_lanes(space, budget, views, best, lane_lines(known, budget.budget_bytes, space.resolution))
    if contenders:
        nothing_yet = best is None and any(view.failed for view in views.values())
        chosen = _choose(space, budget, contenders, best, nothing_yet)
        trial = _trial_in(chosen, space, budget)
        if isinstance(trial, Climb) or len(contenders) > 1 or chosen.line is None:
            return trial
        answers = _may_answer(chosen, trial, space, history)
        return Confirm(candidate=trial.candidate, further=trial.further) if answers else trial
    if best is not None and space.objective is Objective.THROUGHPUT:
        smaller = _smaller_batch(space, views)
        if smaller is not None:
            return smaller
    if best is None:
        return None
    view = views[best.candidate.lane]
    return _in_one_piece(space, budget, view, history) or _confirmation(space, view, history, best)


def _in_one_piece(
    space: SearchSpace, budget: Budget, view: LaneView, history: Sequence[TrialRecord]
) -> LaneTrial | None:
    """The effective batch itself, or the next size above it, which may fit beyond the lane's edge because it is no
    micro-batch."""
    whole = space.effective_batch_size and first_from(space.batch_sizes, space.effective_batch_size)
    if whole is None or whole in view.fits or whole in view.failed:
        return None
    parameters = next((record.outcome.parameters for record in history if record.outcome.parameters), None)
    if not may_fit_whole(whole, view.peaks, parameters, budget.budget_bytes):
        return None
    return Confirm(candidate=view.lane.at(whole))


def _confirmation(space: SearchSpace, view: LaneView, history: Sequence[TrialRecord], best: Fit) -> LaneTrial | None:
    """The run that is still to prove the answer; None when it has."""
    wanted = wanted_answer(space, history, best.candidate)
    if any(fit.candidate == wanted and fit.confirmed_by is not None for fit in all_fits(history)):
        return None
    # Where the answer is the lane's largest, its process shows that larger ones do not fit, unless a fresh one has.
    further = _further(space, view, wanted.batch_size) if wanted == best.candidate else ()
    return Confirm(candidate=wanted, further=further)


def _choose(
    space: SearchSpace, budget: Budget, contenders: list[Contender], best: Fit | None, nothing_yet: bool
) -> Contender:
    match space.objective:
        case Objective.SEQUENCE_LENGTH:
            return _by_length(contenders, best, nothing_yet=nothing_yet)
        case Objective.BATCH_SIZE:
            return _by_batch(contenders, best)
        case _:
            return _by_tokens(contenders, budget, nothing_yet=nothing_yet)


def _by_tokens(contenders: list[Contender], budget: Budget, *, nothing_yet: bool) -> Contender:
    """The most promising, begun or not: a lane's exact edge matters only once nothing may beat it. Two lengths apart
    teach how memory grows with the sequence."""
    if nothing_yet:
        # The most preferred lane can't hold its smallest batch: only the shortest sequence says whether any can.
        return min(contenders, key=lambda contender: contender.length)
    fresh = [contender for contender in contenders if not contender.begun]
    if fresh and all(contender.loan and contender.loan.spread > _FAR for contender in fresh):
        return min(fresh, key=lambda contender: contender.length)
    return max(contenders, key=lambda contender: (contender.tokens(budget.budget_bytes), contender.begun))


def _by_length(contenders: list[Contender], best: Fit | None, *, nothing_yet: bool) -> Contender:
    """The longest first; after that halve the lengths in question; the edge of the longest that fits comes last."""
    reached = (best.candidate.sequence_length or 0) if best else 0
    longer = [contender for contender in contenders if contender.length > reached]
    if not longer:
        return contenders[0]
    return longer[len(longer) // 2] if best or nothing_yet else longer[0]


def _by_batch(contenders: list[Contender], best: Fit | None) -> Contender:
    """The shortest sequence shows the largest batch; then halve the longer lengths that may hold it too."""
    shortest = min(contender.length for contender in contenders)
    if best is None or shortest <= (best.candidate.sequence_length or 0):
        return next(contender for contender in contenders if contender.length == shortest)
    return contenders[len(contenders) // 2]


def _may_answer(contender: Contender, trial: Search, space: SearchSpace, history: Sequence[TrialRecord]) -> bool:
    """In the last lane in question a trial may give the answer: is it run as long as an answer must be?"""
    if space.objective is Objective.THROUGHPUT:
        return False
    if wanted_answer(space, history, trial.candidate) != trial.candidate:
        return False
    view, batch = contender.view, trial.candidate.batch_size
    # Where a climb ended is doubted, so what it closes may not be the last.
    closes = view.closes(batch, space.resolution) and view.reach == view.top
    return closes or full_length_pays(space, history, batch)


def _trial_in(contender: Contender, space: SearchSpace, budget: Budget) -> Climb | Search:
    view = contender.view
    climb = None if contender.begun else _climb(contender, space, budget)
    if climb is not None:
        return Climb(lane=contender.lane, sizes=climb)
    batch = next_batch(
        view,
        line=contender.line,
        spread=contender.loan.spread if contender.loan else _VAGUE,
        budget_bytes=budget.budget_bytes,
        resolution=space.resolution,
        need=contender.need,
    )
    return Search(
        candidate=contender.lane.at(batch),
        further=_further(space, view, batch),
    )


def _further(space: SearchSpace, view: LaneView, batch: int) -> tuple[int, ...]:
    """The larger batches to go on to in its process. The effective one is not among them: it does not accumulate, and
    so is another model."""
    whole = space.effective_batch_size or space.batch_sizes[-1] + 1
    return tuple(size for size in further_batches(view, batch, space.resolution) if size < whole)


def _climb(contender: Contender, space: SearchSpace, budget: Budget) -> tuple[int, ...] | None:
    """The sizes that a first trial may climb through; None when one shot at the edge promises more."""
    top = contender.view.top or space.batch_sizes[-1]
    if contender.loan is None:
        return (
            tuple(_ladder(contender, space.batch_sizes, space.batch_sizes[0], top)) if contender.need <= top else None
        )
    edge = contender.loan.expected.edge(budget.budget_bytes)
    if contender.loan.spread <= _VAGUE:
        return None
    first = first_from(space.batch_sizes, _FOOTHOLD * edge * math.exp(-contender.loan.spread))
    return tuple(_ladder(contender, space.batch_sizes, first, top)) if first is not None and first < top else None


def _ladder(contender: Contender, axis: Sequence[int], first: int, top: int) -> list[int]:
    """The sizes a calibrating trial may choose among, from `first` on."""
    rungs = [first]
    while rungs[-1] < top:
        above = min(first_from(axis, max(rungs[-1] * _RUNG, rungs[-1] + 1)) or top, top)
        rungs.append(
            settled(axis, above, half=contender.lane.half, least=rungs[-1] + 1, most=top, resolution=_RUNG - 1)
        )
    return rungs


def _smaller_batch(space: SearchSpace, views: Mapping[Lane, LaneView]) -> LaneTrial | None:
    """The largest batch is not always the fastest: half and a quarter of it are timed too."""
    for lane, view in views.items():
        if view.low is None or not worth_running(space, lane):
            continue
        for share in (2, 4):
            batch = first_from(space.batch_sizes, view.low / share)
            if batch is not None and batch not in view.fits and batch not in view.failed:
                return Search(candidate=lane.at(batch))
    return None
