"""A remedy, tried: what it costs beside the candidate as it is, and the batch that it allows."""

from __future__ import annotations

import dataclasses

from oomtune.commands.explain.bench import Bench
from oomtune.commands.explain.edge import with_proven_edge
from oomtune.commands.explain.measuring import FURTHEST, measure
from oomtune.commands.explain.remedies import Variation
from oomtune.domain import Budget, Certainty, Cost, Kind, Outcome, ProbeSpec, TriedRemedy

_LONGEST = 100
# Now and then a peak is off by this much. What a remedy changes by less than that has to show twice.
_DOUBTFUL = 0.2
# So many times as long a step is a high price.
_SLOW = 3
# A remedy is given up when it takes so many times as long as the candidate took without it, and at least so long.
_TIMES_AS_LONG = 6
_LEAST_S = 60.0


def tried(
    variation: Variation, budget: Budget, bench: Bench, before: Cost, *, noise_bytes: int, before_s: float
) -> TriedRemedy:
    """The remedy, measured; or why it could not be: one that fails is no failure of the explanation. One that takes
    many times as long as the candidate did without it, such as XLA on a large model, is given up."""
    remedy = TriedRemedy(
        name=variation.name,
        entries=variation.entries,
        micro_batches=variation.micro_batches,
        problem=variation.not_for,
    )
    if variation.not_for:
        return remedy
    settings = variation.spec.trial
    patience_s = min(settings.timeout_s, max(_LEAST_S, _TIMES_AS_LONG * before_s))
    spec = dataclasses.replace(variation.spec, trial=dataclasses.replace(settings, timeout_s=patience_s))
    no_larger = before.certainty is Certainty.NO_LARGER
    # XLA compiles anew for each size.
    further = not variation.needs_xla and not no_larger
    measured = measure(variation.name, spec, variation.candidate, budget, bench, further=further)
    if not measured.points:
        return dataclasses.replace(remedy, problem=_why(measured.outcome))
    if variation.needs_xla is not None and measured.outcome.jit_compile is not variation.needs_xla:
        return dataclasses.replace(remedy, problem="Keras does not use XLA for this model")
    cost = measured.cost(budget, micro_batches=variation.micro_batches)
    if no_larger:
        ran = variation.candidate.batch_size
        cost = dataclasses.replace(cost, largest_batch_size=ran, certainty=Certainty.NO_LARGER)
    elif not _is_worse(cost, before, noise_bytes):
        own = _that_accumulates(spec, variation)
        compiles = bool(variation.needs_xla)
        cost = with_proven_edge(cost, variation.name, own, measured, budget, bench, compiles=compiles)
    changed_bytes = abs(cost.peak_bytes - before.peak_bytes)
    if noise_bytes < changed_bytes < _DOUBTFUL * before.peak_bytes and not variation.needs_xla:
        again = measure(f"{variation.name} once more", spec, variation.candidate, budget, bench, further=False)
        peaks = [cost.peak_bytes, *(point.peak_bytes for point in again.points)]
        nearest = min(peaks, key=lambda peak: abs(peak - before.peak_bytes))
        cost = dataclasses.replace(cost, peak_bytes=nearest)
    return dataclasses.replace(remedy, cost=cost)


def _is_worse(cost: Cost, before: Cost, noise_bytes: int) -> bool:
    """Does it take more memory for sure, or more of memory and much more time? How far one can go with it is of no use
    to anyone then, and a prediction will do."""
    more_bytes = cost.peak_bytes - before.peak_bytes
    slow = cost.step_ms > _SLOW * before.step_ms
    return more_bytes > (noise_bytes if slow else _DOUBTFUL * before.peak_bytes)


def _that_accumulates(spec: ProbeSpec, variation: Variation) -> ProbeSpec:
    """Where batches add up, also those that are larger than the one that they add up to here."""
    if variation.micro_batches == 1:
        return spec
    whole = variation.micro_batches * variation.candidate.batch_size * FURTHEST
    return dataclasses.replace(spec, training=dataclasses.replace(spec.training, effective_batch_size=whole))


def _why(outcome: Outcome) -> str:
    if outcome.error is None or outcome.kind is not Kind.CRASH:
        return outcome.kind.words
    reason = outcome.error.message.partition("\n")[0] or outcome.kind.words
    return reason if len(reason) <= _LONGEST else f"{reason[: _LONGEST - 1]}…"
