"""The remedies that a spec could use: each is a variation of the spec, which is run to measure what it costs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oomtune.commands.explain.bench import MAX_GROWTH, Bench, measure
from oomtune.commands.explain.edge import with_proven_edge
from oomtune.domain import (
    Anatomy,
    Budget,
    Candidate,
    Certainty,
    ClassConfig,
    Cost,
    Kind,
    ModelVariant,
    Outcome,
    ProbeSpec,
    RematMode,
    Script,
    TriedRemedy,
)

_HALF = ("mixed_bfloat16", "mixed_float16")
# Optimizers by state: two values per weight (0), one, a row and a column, none. Unlisted ones count as 0.
_LIGHTNESS = {"sgd with momentum": 1, "lion": 1, "adafactor": 2, "sgd": 3}
_CLASSES = {"adafactor": "Adafactor", "sgd": "SGD"}

_MAX_MESSAGE = 100
# Single peaks are sometimes off by this share. A remedy that changes less has to show it twice.
_DOUBTFUL = 0.2
# A step that takes this many times as long is a high price.
_SLOW = 3
# Give up a remedy that takes this many times as long as the candidate did without it, but not before the minimum.
_PATIENCE = 6
_MIN_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """A remedy to run: the changed spec and candidate, or why the remedy does not apply."""

    name: str
    entries: dict[str, Any]
    spec: ProbeSpec
    candidate: Candidate
    micro_batches: int = 1
    """How many steps train the batch that one step trains without the remedy."""
    needs_xla: bool | None = None
    """Whether the steps must use XLA, or must not, for the remedy to count as applied."""
    obstacle: str = ""


@dataclass(frozen=True, slots=True)
class _Base:
    """The spec and the candidate that remedies vary."""

    spec: ProbeSpec
    candidate: Candidate

    def varied(self, name: str, entries: dict[str, Any], **changes: Any) -> Variation:
        plain = Variation(name=name, entries=entries, spec=self.spec, candidate=self.candidate)
        return dataclasses.replace(plain, **changes)

    def training(self, **changes: Any) -> ProbeSpec:
        return dataclasses.replace(self.spec, training=dataclasses.replace(self.spec.training, **changes))


def variations(
    spec: ProbeSpec, candidate: Candidate, anatomy: Anatomy | None, uses_xla: bool | None
) -> list[Variation]:
    """Return every remedy that the spec does not use yet."""
    base = _Base(spec, candidate)
    obstacle = ""
    if spec.model.trains_itself:
        obstacle = "its own training code decides this"
    elif spec.training.loss is None:
        obstacle = "the model is already compiled with its own optimizer"
    return [
        *_precisions(base),
        *_remat(base),
        *_accumulation(base, obstacle),
        *_optimizers(base, obstacle),
        *_shorter(base),
        *_lighter_cells(base, anatomy),
        *_xla(base, obstacle, uses_xla),
    ]


def _precisions(base: _Base) -> Iterator[Variation]:
    if base.candidate.precision in _HALF:
        return
    model = base.spec.model
    is_fixed = isinstance(model, Script) and not any("{precision}" in argument for argument in model.args)
    for precision in _HALF:
        yield base.varied(
            f"mixed precision ({precision.removeprefix('mixed_')})",
            {"search.precision": [precision]},
            candidate=dataclasses.replace(base.candidate, precision=precision),
            obstacle="the script takes no {precision}" if is_fixed else "",
        )


def _remat(base: _Base) -> Iterator[Variation]:
    if base.candidate.remat is RematMode.FULL:
        return
    yield base.varied(
        "rematerialisation",
        {"search.remat": ["full"]},
        candidate=dataclasses.replace(base.candidate, remat=RematMode.FULL),
        obstacle="its own training code decides this" if base.spec.model.trains_itself else "",
    )


def _accumulation(base: _Base, obstacle: str) -> Iterator[Variation]:
    """Train half the batch at a time, with the same batch for each update."""
    batch = base.candidate.batch_size
    effective = base.spec.training.effective_batch_size or batch
    if batch < 2:
        obstacle = obstacle or "the batch is 1"
    micro = math.ceil(batch / 2)
    yield base.varied(
        "gradient accumulation",
        # The effective batch fits in one step here, so only both entries together split it in two.
        {"training.effective_batch_size": effective, "search.batch_size": {"max": micro}},
        spec=base.training(effective_batch_size=effective),
        candidate=dataclasses.replace(base.candidate, batch_size=micro),
        micro_batches=2,
        obstacle=obstacle,
    )


def _optimizers(base: _Base, obstacle: str) -> Iterator[Variation]:
    if obstacle:
        yield base.varied("a lighter optimizer", {"training.optimizer": "sgd"}, obstacle=obstacle)
        return
    used = base.spec.training.optimizer_of(base.candidate)
    config = dict(used.config) if isinstance(used, ClassConfig) else {}
    name = (used.class_name if isinstance(used, ClassConfig) else used).lower()
    if name == "sgd" and config.get("momentum"):
        name = "sgd with momentum"
    rate = config.get("learning_rate")
    for lighter in ("adafactor", "sgd"):
        if _LIGHTNESS[lighter] <= _LIGHTNESS.get(name, 0):
            continue
        # A learning rate chosen for one optimizer is a better guess for another than the default.
        chosen: str | ClassConfig = lighter
        value: Any = lighter
        if isinstance(rate, int | float):
            chosen = ClassConfig(class_name=_CLASSES[lighter], config={"learning_rate": rate})
            value = {"class_name": chosen.class_name, "config": chosen.config}
        yield base.varied(
            "sgd without momentum" if (lighter, name) == ("sgd", "sgd with momentum") else f"{lighter} for {name}",
            {"training.optimizer": value},
            spec=base.training(optimizer=chosen),
            candidate=dataclasses.replace(base.candidate, optimizer=None),
        )


def _shorter(base: _Base) -> Iterator[Variation]:
    """Use about half the sequence: a length from the spec's search, if one is near."""
    length = base.candidate.sequence_length
    if length is None:
        return
    candidates = [other for other in base.spec.space.sequence_lengths or () if other < length]
    shorter = min(candidates, key=lambda other: abs(other - length / 2), default=0)
    if not 0.25 * length <= shorter <= 0.8 * length:
        shorter = length // 2
    yield base.varied(
        f"a sequence of {shorter}",
        {"search.sequence_length": shorter},
        candidate=dataclasses.replace(base.candidate, sequence_length=max(1, shorter)),
        obstacle="the sequence is one step long" if length < 2 else "",
    )


def _lighter_cells(base: _Base, anatomy: Anatomy | None) -> Iterator[Variation]:
    if anatomy is None or "LSTM" not in anatomy.layer_classes:
        return
    yield base.varied(
        "GRU for LSTM",
        {},
        spec=dataclasses.replace(base.spec, variant=ModelVariant.GRU_FOR_LSTM),
        obstacle="its own training code builds the model" if base.spec.model.trains_itself else "",
    )


def _xla(base: _Base, obstacle: str, uses_xla: bool | None) -> Iterator[Variation]:
    turn_on = not uses_xla
    if base.spec.training.run_eagerly:
        obstacle = obstacle or "training.run_eagerly is set"
    yield base.varied(
        f"XLA {'on' if turn_on else 'off'}",
        {"training.jit_compile": turn_on},
        spec=base.training(jit_compile=turn_on),
        needs_xla=turn_on,
        obstacle=obstacle,
    )


def try_remedy(
    variation: Variation, budget: Budget, bench: Bench, before: Cost, *, noise_bytes: int, before_s: float
) -> TriedRemedy:
    """Measure a remedy, or return why it can't be measured: a failing remedy does not fail the explanation.

    A remedy that takes far longer than the candidate did without it, such as XLA on a large model, is given up."""
    remedy = TriedRemedy(
        name=variation.name,
        entries=variation.entries,
        micro_batches=variation.micro_batches,
        problem=variation.obstacle,
    )
    if variation.obstacle:
        return remedy
    settings = variation.spec.trial
    timeout_s = min(settings.timeout_s, max(_MIN_PATIENCE_S, _PATIENCE * before_s))
    spec = dataclasses.replace(variation.spec, trial=dataclasses.replace(settings, timeout_s=timeout_s))
    no_larger = before.certainty is Certainty.NO_LARGER
    # XLA compiles every size anew.
    further = not variation.needs_xla and not no_larger
    measured = measure(variation.name, spec, variation.candidate, budget, bench, further=further)
    if not measured.points:
        return dataclasses.replace(remedy, problem=_failure(measured.outcome))
    if variation.needs_xla is not None and measured.outcome.jit_compile is not variation.needs_xla:
        return dataclasses.replace(remedy, problem="Keras does not use XLA for this model")
    cost = measured.cost(budget, micro_batches=variation.micro_batches)
    if no_larger:
        batch_size = variation.candidate.batch_size
        cost = dataclasses.replace(cost, largest_batch_size=batch_size, certainty=Certainty.NO_LARGER)
    elif not _is_worse(cost, before, noise_bytes):
        larger = _with_larger_effective_batch(spec, variation)
        compiles = bool(variation.needs_xla)
        cost = with_proven_edge(cost, variation.name, larger, measured, budget, bench, compiles=compiles)
    changed_bytes = abs(cost.peak_bytes - before.peak_bytes)
    if noise_bytes < changed_bytes < _DOUBTFUL * before.peak_bytes and not variation.needs_xla:
        again = measure(f"{variation.name} again", spec, variation.candidate, budget, bench, further=False)
        peaks = [cost.peak_bytes, *(point.peak_bytes for point in again.points)]
        nearest = min(peaks, key=lambda peak: abs(peak - before.peak_bytes))
        cost = dataclasses.replace(cost, peak_bytes=nearest)
    return dataclasses.replace(remedy, cost=cost)


def _is_worse(cost: Cost, before: Cost, noise_bytes: int) -> bool:
    """Return True if the remedy clearly takes more memory, or more memory and much more time.

    Nobody needs to know exactly how far such a remedy goes, so a prediction is enough."""
    more_bytes = cost.peak_bytes - before.peak_bytes
    is_slow = cost.step_ms > _SLOW * before.step_ms
    return more_bytes > (noise_bytes if is_slow else _DOUBTFUL * before.peak_bytes)


def _with_larger_effective_batch(spec: ProbeSpec, variation: Variation) -> ProbeSpec:
    """Let accumulation reach batches beyond the one that the micro-batches add up to here."""
    if variation.micro_batches == 1:
        return spec
    effective = variation.micro_batches * variation.candidate.batch_size * MAX_GROWTH
    return dataclasses.replace(spec, training=dataclasses.replace(spec.training, effective_batch_size=effective))


def _failure(outcome: Outcome) -> str:
    if outcome.error is None or outcome.kind is not Kind.CRASH:
        return outcome.kind.words
    message = outcome.error.message.partition("\n")[0] or outcome.kind.words
    return message if len(message) <= _MAX_MESSAGE else f"{message[: _MAX_MESSAGE - 1]}…"
