"""A whole explanation, from a spec to where its memory goes and what each remedy saves."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from oomtune.commands.explain.baseline import baseline
from oomtune.commands.explain.bench import Bench, ExplainObserver, ForkBench
from oomtune.commands.explain.choosing import GROWS, Asked, choose, failed
from oomtune.commands.explain.growth import growth_of
from oomtune.commands.explain.measuring import Measurement
from oomtune.commands.explain.remedies import variations
from oomtune.commands.explain.trying import tried
from oomtune.commands.prepare import (
    deciding_files,
    device_flags,
    needed,
    pinned_environment,
    resolved_device,
    started_worker,
    versions,
    with_its_data,
)
from oomtune.commands.scan import said_of
from oomtune.domain import (
    Budget,
    Candidate,
    Climb,
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
from oomtune.spec import LoadedSpec, load_spec
from oomtune.storage.explanations import keep_explanation
from oomtune.storage.tuned import load_tuned

# Shares of the candidate's batch that show how memory grows up to it.
_SMALLER = (0.125, 0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainOptions:
    """What may be said beside the spec; each beats the spec's own entry."""

    device: str | None = None
    memory_limit: str | int | None = None
    like: str | None = None
    settings: Sequence[str] = ()
    batch_size: int | None = None
    sequence_length: int | None = None

    def asked(self, loaded: LoadedSpec) -> Asked:
        for flag, value in (("--batch-size", self.batch_size), ("--sequence-length", self.sequence_length)):
            if value is not None and value < 1:
                raise UsageProblem(f"{flag} {value}: expected 1 or more")
        if self.sequence_length is not None and loaded.spec.space.sequence_lengths is None:
            raise UsageProblem(
                "--sequence-length: the spec has no search.sequence_length", hint="leave the flag out, or add the entry"
            )
        # Whoever sets another search does not ask for the answer of the old one.
        is_answer = loaded.was_tuned and not any(setting.startswith("search.") for setting in self.settings)
        return Asked(
            batch_size=self.batch_size,
            sequence_length=self.sequence_length,
            tuned=load_tuned(loaded.path) if is_answer else None,
        )


def run_explain(source: str | Path, options: ExplainOptions, observer: ExplainObserver) -> Explanation:
    """Explain a spec. Raises an `OomtuneError` when the candidate does not fit, or its trial fails."""
    with started_worker() as starting:
        loaded = load_spec(
            source,
            settings=options.settings,
            flags=device_flags(options.device, options.memory_limit, options.like),
        )
        asked = options.asked(loaded)
        loaded = dataclasses.replace(loaded, spec=asked.trained(loaded.spec))
        host = needed(starting)
        resolved = resolved_device(loaded, host)
        loaded = with_its_data(loaded, deciding_files(loaded), host, observer)
        spec, device, budget = loaded.spec, resolved.device, resolved.budget
        said = [] if spec.scan is None else said_of(spec.scan, spec)[:1]
        notices = (*resolved.notices, *said)
        observer.probe_started(spec, device, budget, 0)
        for notice in notices:
            observer.notice(notice)
        bench = ForkBench(device, host, observer)
        try:
            explanation = explain(spec, device, budget, asked, bench)
        finally:
            bench.close()  # its host may be another than the one it was given
    environment = {**versions(), "needs_environment": {**pinned_environment(), **bench.environment}}
    explanation = dataclasses.replace(explanation, environment=environment, notices=notices)
    keep_explanation(explanation, loaded.path, loaded.sha256, loaded.values)
    return explanation


def explain(spec: ProbeSpec, device: Device, budget: Budget, asked: Asked, bench: Bench) -> Explanation:
    """Choose the candidate, look inside it, then run it again with each remedy."""
    choice = choose(spec, budget, asked, bench)
    candidate = choice.candidate
    looked = _looked_inside(spec, budget, candidate, asked, bench)
    plain = baseline(spec, budget, candidate, looked, asked, bench)
    before, outcome = plain.cost, plain.measured.outcome
    climbed = choice.outcome or _climbed(spec, budget, candidate, bench)
    plans = variations(spec, candidate, looked.anatomy, outcome.jit_compile)
    remedies = [
        tried(plan, budget, bench, before, noise_bytes=plain.noise_bytes, before_s=outcome.duration_s) for plan in plans
    ]
    shorter = {
        length: remedy.cost
        for plan, remedy in zip(plans, remedies, strict=True)
        if remedy.cost and (length := plan.candidate.sequence_length) not in (None, candidate.sequence_length)
    }
    return Explanation(
        spec=spec,
        device=device,
        budget=budget,
        candidate=candidate,
        chosen=choice.why,
        before=before,
        anatomy=looked.anatomy,
        growth=growth_of(_points(climbed, plain.measured), candidate, before, shorter),
        remedies=tuple(sorted(remedies, key=_by_what_it_buys)),
        trials=bench.trials,
        noise_bytes=plain.noise_bytes,
    )


def _by_what_it_buys(remedy: TriedRemedy) -> tuple[bool, int, int]:
    cost = remedy.cost
    return (True, 0, 0) if cost is None else (False, -cost.largest_batch_size, cost.peak_bytes)


def _looked_inside(spec: ProbeSpec, budget: Budget, candidate: Candidate, asked: Asked, bench: Bench) -> Fitted:
    trial = Search(candidate=candidate, shows_anatomy=True)
    outcome = bench.run("what memory holds at the peak", spec, budget, trial)
    if not isinstance(outcome, Fitted):
        raise failed(outcome, spec, budget, candidate, asked)
    return outcome


def _climbed(spec: ProbeSpec, budget: Budget, candidate: Candidate, bench: Bench) -> Outcome:
    """How memory grows up to a candidate that no climb has led to."""
    sizes = sorted({math.ceil(candidate.batch_size * share) for share in _SMALLER})
    trial = Climb(lane=candidate.lane, sizes=tuple(sizes), every_size=True)
    return bench.run(GROWS, spec, budget, trial)


def _points(climbed: Outcome, plain: Measurement) -> tuple[Point, ...]:
    found = {point.batch_size: point for point in (*climbed.points, *plain.points)}
    return tuple(found[size] for size in sorted(found))
