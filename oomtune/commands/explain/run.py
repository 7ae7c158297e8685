"""The course of an explanation: choose a candidate, look inside it, then run it again with each remedy."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oomtune.commands.explain.bench import NOISE, Bench, ExplainObserver, ForkBench, Measurement, measure
from oomtune.commands.explain.candidate import GROWTH, Request, candidate_error, choose_candidate
from oomtune.commands.explain.edge import with_proven_edge
from oomtune.commands.explain.growth import measure_growth
from oomtune.commands.explain.remedies import try_remedy, variations
from oomtune.commands.prepare import device_flags, prepare
from oomtune.commands.scan import describe_scan
from oomtune.domain import (
    Budget,
    Candidate,
    Climb,
    Cost,
    Device,
    Explanation,
    Fitted,
    Outcome,
    Point,
    ProbeSpec,
    Search,
    TriedRemedy,
)
from oomtune.errors import UsageProblem
from oomtune.spec import LoadedSpec, load_spec, read_document
from oomtune.storage.explanations import save_explanation
from oomtune.storage.tuned import tuned_config

# Shares of the candidate's batch that show how memory grows up to it.
_SMALLER = (0.125, 0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainOptions:
    """What flags set beside the spec; each overrides the spec's own entry."""

    device: str | None = None
    memory_limit: str | int | None = None
    like: str | None = None
    settings: Sequence[str] = ()
    batch_size: int | None = None
    sequence_length: int | None = None

    def request(self, loaded: LoadedSpec, values: Mapping[str, Any]) -> Request:
        """Return what to explain; `values` are those of the file, with the answer of a tuned config."""
        for flag, value in (("--batch-size", self.batch_size), ("--sequence-length", self.sequence_length)):
            if value is not None and value < 1:
                raise UsageProblem(f"{flag} {value}: expected 1 or more")
        if self.sequence_length is not None and loaded.spec.space.sequence_lengths is None:
            raise UsageProblem(
                "--sequence-length: the spec has no search.sequence_length", hint="leave the flag out, or add the entry"
            )
        # Setting a search entry asks for another search, not for the answer of the old one.
        is_answer = loaded.was_tuned and not any(setting.startswith("search.") for setting in self.settings)
        return Request(
            batch_size=self.batch_size,
            sequence_length=self.sequence_length,
            tuned=tuned_config(values, loaded.path) if is_answer else None,
        )


def run_explain(path: Path, options: ExplainOptions, observer: ExplainObserver) -> Explanation:
    """Explain a spec. Raises an `OomtuneError` if the candidate does not fit or its trial fails."""
    with prepare(observer) as preparation:
        document = read_document(path)
        flags = device_flags(options.device, options.memory_limit, options.like)
        loaded = load_spec(document, settings=options.settings, flags=flags)
        request = options.request(loaded, document.values)
        loaded = dataclasses.replace(loaded, spec=request.with_answers_optimizer(loaded.spec))
        prepared = preparation.read_data(loaded, preparation.resolve_device(loaded))
        spec, device, budget = prepared.spec, prepared.device, prepared.budget
        notices = (*prepared.notices, *describe_scan(spec)[:1])
        observer.probe_started(spec, device, budget, 0)
        for notice in notices:
            observer.notice(notice)
        explanation = explain(spec, device, budget, request, ForkBench(prepared, observer))
        explanation = dataclasses.replace(explanation, environment=prepared.environment, notices=notices)
    save_explanation(explanation, loaded.path, loaded.sha256, loaded.values)
    return explanation


def explain(spec: ProbeSpec, device: Device, budget: Budget, request: Request, bench: Bench) -> Explanation:
    """Explain the requested candidate with the trials that the bench runs."""
    choice = choose_candidate(spec, budget, request, bench)
    candidate = choice.candidate
    dissected = _dissect(spec, budget, candidate, request, bench)
    baseline = _measure_baseline(spec, budget, candidate, dissected, request, bench)
    before, outcome = baseline.cost, baseline.measured.outcome
    climb = choice.climb or _climb_below(spec, budget, candidate, bench)
    plans = variations(spec, candidate, dissected.anatomy, outcome.jit_compile)
    remedies = [
        try_remedy(plan, budget, bench, before, noise_bytes=baseline.noise_bytes, before_s=outcome.duration_s)
        for plan in plans
    ]
    shorter = {
        length: remedy.cost
        for plan, remedy in zip(plans, remedies, strict=True)
        if remedy.cost and (length := plan.candidate.sequence_length) not in (None, candidate.sequence_length)
    }
    points = {point.batch_size: point for point in (*climb.points, *baseline.measured.points)}
    return Explanation(
        spec=spec,
        device=device,
        budget=budget,
        candidate=candidate,
        chosen=choice.why,
        before=before,
        anatomy=dissected.anatomy,
        growth=measure_growth(_by_batch_size(points), candidate, before, shorter),
        remedies=tuple(sorted(remedies, key=_largest_batch_first)),
        trials=bench.trials,
        noise_bytes=baseline.noise_bytes,
    )


def _by_batch_size(points: Mapping[int, Point]) -> tuple[Point, ...]:
    return tuple(points[size] for size in sorted(points))


def _largest_batch_first(remedy: TriedRemedy) -> tuple[bool, int, int]:
    cost = remedy.cost
    return (True, 0, 0) if cost is None else (False, -cost.largest_batch_size, cost.peak_bytes)


def _dissect(spec: ProbeSpec, budget: Budget, candidate: Candidate, request: Request, bench: Bench) -> Fitted:
    trial = Search(candidate=candidate, shows_anatomy=True)
    outcome = bench.run("what memory holds at the peak", spec, budget, trial)
    if not isinstance(outcome, Fitted):
        raise candidate_error(outcome, spec, budget, candidate, request)
    return outcome


def _climb_below(spec: ProbeSpec, budget: Budget, candidate: Candidate, bench: Bench) -> Outcome:
    """Show how memory grows up to a candidate that no climb has led to."""
    sizes = sorted({math.ceil(candidate.batch_size * share) for share in _SMALLER})
    trial = Climb(lane=candidate.lane, sizes=tuple(sizes), every_size=True)
    return bench.run(GROWTH, spec, budget, trial)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The unchanged candidate, which remedies are compared with."""

    measured: Measurement
    cost: Cost
    noise_bytes: int
    """By how much peaks of two runs of it may differ."""


def _measure_baseline(
    spec: ProbeSpec, budget: Budget, candidate: Candidate, dissected: Fitted, request: Request, bench: Bench
) -> Baseline:
    """Run the dissected candidate twice more. Raises an `OomtuneError` if it fits neither time."""
    runs = [
        measure("the candidate unchanged", spec, candidate, budget, bench),
        measure("the candidate again", spec, candidate, budget, bench, further=False),
    ]
    # At its very edge a batch fits in one process and not in the next.
    fitting = [run for run in runs if run.points]
    if not fitting:
        raise candidate_error(runs[0].outcome, spec, budget, candidate, request)
    points = [run.points[0] for run in fitting]
    # The peak is that of the dissected trial, whose parts are shown; the other runs show the noise. Of the step times
    # the shortest counts: other load on the machine only adds to them.
    peak_bytes = dissected.peak_bytes
    peaks = [peak_bytes, *(point.peak_bytes for point in points)]
    step_ms = min(point.step_ms for point in points)
    cost = dataclasses.replace(fitting[0].cost(budget), peak_bytes=peak_bytes, step_ms=step_ms)
    compiles = bool(fitting[0].outcome.jit_compile)
    return Baseline(
        measured=fitting[0],
        cost=with_proven_edge(cost, "unchanged", spec, fitting[0], budget, bench, compiles=compiles),
        noise_bytes=max(int(NOISE * peak_bytes), max(peaks) - min(peaks)),
    )
