"""Which lane to work on next, and when the answer is known.

Only lanes that may still beat the best so far are run. Then the best is confirmed; a failed confirm is one more line
of history.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from oomtune.domain import (
    Budget,
    Climb,
    Confirm,
    Fit,
    Lane,
    LaneTrial,
    Objective,
    Provenance,
    Run,
    Search,
    SearchSpace,
    TrialRecord,
)
from oomtune.search.answer import all_fits, batch_to_beat, largest_fit, refusals, wanted_answer
from oomtune.search.curves import Line, Loan, borrow_line, line_from_one, rising_line
from oomtune.search.lanes import Evidence, LaneView, lane_lines, views_of
from oomtune.search.next_size import first_from, further_batches, next_batch, prefer_even
from oomtune.search.tuning import TUNING

# Gradients add up in the type of the weights, which is float32 in every precision.
_GRADIENT_BYTES = 4


def next_trial(space: SearchSpace, budget: Budget, history: Sequence[TrialRecord]) -> LaneTrial | None:
    """Return the trial that history calls for; None when the answer is known and confirmed, or nothing fits."""
    return next_trial_by(space, budget, Evidence.for_answer(history))


def next_trial_by(
    space: SearchSpace, budget: Budget, evidence: Evidence, *, beside: Sequence[Lane] = ()
) -> LaneTrial | None:
    """Return the trial that this evidence calls for. Lanes `beside` the space are not searched, but what ran in them
    predicts those that are."""
    for part in _parts(space, evidence):
        trial = _next_in_part(part, budget, evidence, beside)
        if trial is not None or largest_fit(part, evidence) is not None:
            return trial
    return None


def _parts(space: SearchSpace, evidence: Evidence) -> Iterator[SearchSpace]:
    """Yield the space of one optimizer after the other, without the precisions that were refused."""
    refused = refusals(evidence)
    precisions = tuple(precision for precision in space.precisions if precision not in refused)
    if precisions:
        for optimizer in space.optimizers:
            yield _shared_resolution(replace(space, precisions=precisions, optimizers=(optimizer,)))


def _shared_resolution(space: SearchSpace) -> SearchSpace:
    """Leave half of the resolution to the choice of the lane and half to the batch in it, where lanes compete for
    tokens: what the two give away adds up. Micro-batches are chosen by their sum, not to the last percent."""
    adds_up = space.objective is Objective.TOKENS and not space.every_lane and space.effective_batch_size is None
    several = len(space.lanes()) > 1
    return replace(space, resolution=space.resolution / 2) if adds_up and several else space


def _next_in_part(space: SearchSpace, budget: Budget, evidence: Evidence, beside: Sequence[Lane]) -> LaneTrial | None:
    views = views_of(space, evidence, budget)
    best = largest_fit(space, evidence)
    known = views_of(space, evidence, budget, beside) if beside else views
    contenders = contending_lanes(space, budget, views, best, lane_lines(known))
    if contenders:
        nothing_yet = best is None and any(view.failed for view in views.values())
        chosen = _choose(space, budget, contenders, best, nothing_yet)
        trial = _trial_in(chosen, space, budget)
        if isinstance(trial, Climb) or len(contenders) > 1 or chosen.line is None:
            return trial
        answers = _may_answer(chosen, trial, space, evidence)
        return Confirm(candidate=trial.candidate, further=trial.further) if answers else trial
    if best is None:
        return None
    if space.objective is Objective.THROUGHPUT and (smaller := _smaller_batch(space, views)) is not None:
        return smaller
    view = views[best.candidate.lane]
    return _in_one_piece(space, budget, view, evidence) or _confirmation(space, view, evidence, best)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A lane that may still win, the batch it needs for that, and what is thought of its curve."""

    view: LaneView
    need: int
    loan: Loan | None
    line: Line | None

    @property
    def lane(self) -> Lane:
        return self.view.lane

    @property
    def length(self) -> int:
        return self.lane.sequence_length or 0

    def tokens(self, budget_bytes: int) -> float:
        top = self.view.top or 0
        batch = min(top, self.line.edge(budget_bytes)) if self.line else top
        return batch * (self.length or 1)


def contending_lanes(
    space: SearchSpace,
    budget: Budget,
    views: Mapping[Lane, LaneView],
    best: Fit | None,
    lines: Mapping[Lane, Line],
) -> list[Contender]:
    """Return the lanes whose edge is open and that may beat the best so far, in order of preference."""
    may_win = []
    for lane, view in views.items():
        # The winner's edge is proved in the end; of the other lanes it is enough to know it.
        winner = best is not None and best.candidate.lane == lane
        done = view.is_closed(space.resolution) if winner else view.edge_is_known(space.resolution)
        if done or not _is_worth_running(space, lane):
            continue
        need = _need(space, lane, best)
        if need is None or view.reach is None or need > view.reach:
            continue
        loan = None if lane in lines else borrow_line(lane, lines, budget.budget_bytes)
        line = lines.get(lane) or line_from_one(view.peaks, loan.expected if loan else None)
        contender = Contender(view=view, need=need, loan=loan, line=line)
        if winner or space.every_lane or not _is_hopeless(contender, lines.get(lane), space, budget):
            may_win.append(contender)
    return may_win


def _is_worth_running(space: SearchSpace, lane: Lane) -> bool:
    """A longer sequence never trains more samples a second, so for throughput only the shortest is run."""
    if space.every_lane or space.objective is not Objective.THROUGHPUT or space.sequence_lengths is None:
        return True
    return lane.sequence_length == space.sequence_lengths[0]


def _need(space: SearchSpace, lane: Lane, best: Fit | None) -> int | None:
    if best is None or space.every_lane or space.objective is Objective.THROUGHPUT:
        return space.batch_sizes[0]
    return batch_to_beat(space, lane, best.candidate)


def _is_hopeless(contender: Contender, own: Line | None, space: SearchSpace, budget: Budget) -> bool:
    """Return whether the curve leaves no room to win, even if it is as wrong as it may be. An exact answer, with
    resolution 0, rules nothing out by a curve."""
    line = own or (contender.loan.flattest if contender.loan else None)
    if space.resolution == 0 or line is None:
        return False
    return line.edge(budget.budget_bytes) * TUNING.line_doubt < contender.need


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
    """Take the most promising lane, begun or not: its exact edge matters only once nothing may beat it. While all that
    is known of the others is vague, take the shortest: two lengths apart teach how memory grows with the sequence."""
    if nothing_yet:
        # The most preferred lane can't hold its smallest batch: only the shortest sequence shows whether any can.
        return min(contenders, key=lambda contender: contender.length)
    fresh = [contender for contender in contenders if not contender.view.begun]
    if fresh and all(contender.loan and contender.loan.is_vague for contender in fresh):
        return min(fresh, key=lambda contender: contender.length)
    return max(contenders, key=lambda contender: (contender.tokens(budget.budget_bytes), contender.view.begun))


def _by_length(contenders: list[Contender], best: Fit | None, *, nothing_yet: bool) -> Contender:
    """Take the longest first, then halve the lengths in question; the edge of the longest that fits comes last."""
    reached = (best.candidate.sequence_length or 0) if best else 0
    longer = [contender for contender in contenders if contender.length > reached]
    if not longer:
        return contenders[0]
    return longer[len(longer) // 2] if best or nothing_yet else longer[0]


def _by_batch(contenders: list[Contender], best: Fit | None) -> Contender:
    """Take the shortest sequence, which shows the largest batch; then halve the longer ones that may hold it too."""
    shortest = min(contender.length for contender in contenders)
    if best is None or shortest <= (best.candidate.sequence_length or 0):
        return next(contender for contender in contenders if contender.length == shortest)
    return contenders[len(contenders) // 2]


def _trial_in(contender: Contender, space: SearchSpace, budget: Budget) -> Climb | Search:
    view = contender.view
    climb = None if view.begun else _climb(contender, space, budget)
    if climb is not None:
        return Climb(lane=contender.lane, sizes=climb)
    batch = next_batch(
        view,
        line=contender.line,
        spread=contender.loan.spread if contender.loan else 0.0,
        budget_bytes=budget.budget_bytes,
        resolution=space.resolution,
        need=contender.need,
    )
    return Search(candidate=contender.lane.at(batch), further=_further(space, view, batch))


def _further(space: SearchSpace, view: LaneView, batch: int) -> tuple[int, ...]:
    """Return the larger batches to go on to in the same process. The effective batch is not among them: it does not
    accumulate gradients, and so is another model."""
    whole = space.effective_batch_size or space.batch_sizes[-1] + 1
    return tuple(size for size in further_batches(view, batch, space.resolution) if size < whole)


def _climb(contender: Contender, space: SearchSpace, budget: Budget) -> tuple[int, ...] | None:
    """Return the sizes that a first trial may climb through; None when one shot at the edge promises more."""
    axis, top = space.batch_sizes, contender.view.top or space.batch_sizes[-1]
    if contender.loan is None:
        return _ladder(contender, axis, axis[0], top) if contender.need <= top else None
    if not contender.loan.is_vague:
        return None
    edge = contender.loan.expected.edge(budget.budget_bytes)
    first = first_from(axis, TUNING.foothold * edge * math.exp(-contender.loan.spread))
    return _ladder(contender, axis, first, top) if first is not None and first < top else None


def _ladder(contender: Contender, axis: Sequence[int], first: int, top: int) -> tuple[int, ...]:
    rungs, half, ratio = [first], contender.lane.is_half, 1 + TUNING.rung
    while rungs[-1] < top:
        above = min(first_from(axis, max(rungs[-1] * ratio, rungs[-1] + 1)) or top, top)
        rungs.append(prefer_even(axis, above, half=half, least=rungs[-1] + 1, most=top, resolution=TUNING.rung))
    return tuple(rungs)


def _may_answer(contender: Contender, trial: Search, space: SearchSpace, evidence: Evidence) -> bool:
    """Return whether to run a trial in the last open lane for as long as an answer must run."""
    if space.objective is Objective.THROUGHPUT:
        return False
    if wanted_answer(space, evidence, trial.candidate) != trial.candidate:
        return False
    view, batch = contender.view, trial.candidate.batch_size
    # Where a climb ended is doubted, so a batch that closes the lane by it may not be the last.
    closes = view.closes(batch, space.resolution) and view.reach == view.top
    return closes or _full_length_pays(space, evidence, batch)


def _full_length_pays(space: SearchSpace, evidence: Evidence, batch: int) -> bool:
    """Return whether it is cheaper to run a batch as long as an answer must run, though larger ones are open.

    At full length it costs its further steps, for nothing if a larger batch fits too. Run short, it costs a trial more
    if none does. Where building the model takes the time, that trial is dearer; where steps are slow, they are.
    """
    for _, trial in itertools.groupby(reversed(evidence.runs), key=lambda run: run.trial_number):
        runs = list(trial)
        duration_s = max(run.duration_s or 0.0 for run in runs)
        step_s = {run: run.step_ms / 1000 for run in runs if run.step_ms}
        if duration_s > 0 and step_s:
            overhead_s = max(0.0, duration_s - sum(s * steps_of(run, space.confirm_steps) for run, s in step_s.items()))
            largest = max(step_s, key=lambda run: run.candidate.batch_size)
            further_s = space.confirm_steps * step_s[largest] * batch / largest.candidate.batch_size
            return further_s <= TUNING.last_share * (overhead_s + further_s)
    return True


def steps_of(run: Run, confirm_steps: int) -> int:
    """Return about how many steps a run took, validation included. One that does not fit ends early."""
    if not run.fits:
        return TUNING.steps_to_fail
    at_full_length = run.is_confirm and run.provenance is Provenance.FRESH_PROCESS
    return TUNING.steps_per_size + (confirm_steps if at_full_length else 0)


def _smaller_batch(space: SearchSpace, views: Mapping[Lane, LaneView]) -> Search | None:
    """Time half and a quarter of the largest batch too: it is not always the fastest."""
    for lane, view in views.items():
        if view.low is None or not _is_worth_running(space, lane):
            continue
        for share in (2, 4):
            batch = first_from(space.batch_sizes, view.low / share)
            if batch is not None and batch not in view.fits and batch not in view.failed:
                return Search(candidate=lane.at(batch))
    return None


def _in_one_piece(space: SearchSpace, budget: Budget, view: LaneView, evidence: Evidence) -> Confirm | None:
    """Try the effective batch itself, or the next size above it. It may fit beyond the lane's edge: without
    micro-batches there is no copy of the weights to add gradients up in."""
    whole = space.effective_batch_size and first_from(space.batch_sizes, space.effective_batch_size)
    if whole is None or whole in view.fits or whole in view.failed:
        return None
    parameters = next((record.outcome.parameters for record in evidence.records if record.outcome.parameters), None)
    line = rising_line({batch: peak for batch, peak in view.peaks.items() if batch < whole})
    if line is None or parameters is None:
        return None
    expected_bytes = line.fixed_bytes + line.bytes_per_sample * whole - _GRADIENT_BYTES * parameters
    if expected_bytes > budget.budget_bytes:
        return None
    return Confirm(candidate=view.lane.at(whole))


def _confirmation(space: SearchSpace, view: LaneView, evidence: Evidence, best: Fit) -> Confirm | None:
    """Return the run that has yet to prove the answer; None when it has."""
    wanted = wanted_answer(space, evidence, best.candidate)
    if any(fit.candidate == wanted and fit.confirmed_by is not None for fit in all_fits(evidence)):
        return None
    # Where the answer is the lane's largest, its process shows that larger ones do not fit, unless a fresh one has.
    further = _further(space, view, wanted.batch_size) if wanted == best.candidate else ()
    return Confirm(candidate=wanted, further=further)
