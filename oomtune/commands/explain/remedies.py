"""The remedies that a spec could take, each as a variation of it to be run; pure."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oomtune.domain import Anatomy, Candidate, ClassConfig, ModelVariant, ProbeSpec, RematMode, Script

_HALF = ("mixed_bfloat16", "mixed_float16")
# From the heaviest on: two states for each weight, one, a row and a column, none. Others count as the heaviest.
_LIGHTER = {"sgd with momentum": 1, "lion": 1, "adafactor": 2, "sgd": 3}
_CLASSES = {"adafactor": "Adafactor", "sgd": "SGD"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """A remedy to run: the spec and candidate with it; or why it is not for this spec."""

    name: str
    entries: dict[str, Any]
    spec: ProbeSpec
    candidate: Candidate
    micro_batches: int = 1
    """How many steps train the batch that one step trained before."""
    needs_xla: bool | None = None
    """Whether the steps have to use XLA for this to be the remedy."""
    not_for: str = ""


@dataclass(frozen=True, slots=True)
class _At:
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
    """Every remedy, in no order; those that this spec has already are left out."""
    at = _At(spec, candidate)
    compiled_here = spec.training.loss is not None
    if spec.model.trains_itself:
        own = "its own training code decides that"
    else:
        own = "" if compiled_here else "the model comes compiled with its own optimizer"
    return [
        *_precisions(at),
        *_remat(at),
        *_accumulation(at, own),
        *_optimizers(at, own),
        *_shorter(at),
        *_lighter_cells(at, anatomy),
        *_xla(at, own, uses_xla),
    ]


def _precisions(at: _At) -> Iterator[Variation]:
    if at.candidate.precision in _HALF:
        return
    model = at.spec.model
    closed = isinstance(model, Script) and not any("{precision}" in argument for argument in model.args)
    for precision in _HALF:
        yield at.varied(
            f"mixed precision ({precision.removeprefix('mixed_')})",
            {"search.precision": [precision]},
            candidate=dataclasses.replace(at.candidate, precision=precision),
            not_for="the script takes no {precision}" if closed else "",
        )


def _remat(at: _At) -> Iterator[Variation]:
    if at.candidate.remat is RematMode.FULL:
        return
    yield at.varied(
        "rematerialisation",
        {"search.remat": ["full"]},
        candidate=dataclasses.replace(at.candidate, remat=RematMode.FULL),
        not_for="its own training code decides that" if at.spec.model.trains_itself else "",
    )


def _accumulation(at: _At, own: str) -> Iterator[Variation]:
    """Half the batch at a time; the batch that an update sees stays."""
    batch = at.candidate.batch_size
    kept = at.spec.training.effective_batch_size or batch
    if batch < 2:
        own = own or "the batch is 1"
    micro = math.ceil(batch / 2)
    yield at.varied(
        "gradient accumulation",
        # The batch that is kept fits at once here, so it takes both to have it in two.
        {"training.effective_batch_size": kept, "search.batch_size": {"max": micro}},
        spec=at.training(effective_batch_size=kept),
        candidate=dataclasses.replace(at.candidate, batch_size=micro),
        micro_batches=2,
        not_for=own,
    )


def _optimizers(at: _At, own: str) -> Iterator[Variation]:
    if own:
        yield at.varied("a lighter optimizer", {"training.optimizer": "sgd"}, not_for=own)
        return
    used = at.spec.training.optimizer_of(at.candidate)
    config = dict(used.config) if isinstance(used, ClassConfig) else {}
    name = (used.class_name if isinstance(used, ClassConfig) else used).lower()
    if name == "sgd" and config.get("momentum"):
        name = "sgd with momentum"
    rate = config.get("learning_rate")
    for lighter in ("adafactor", "sgd"):
        if _LIGHTER[lighter] <= _LIGHTER.get(name, 0):
            continue
        # A rate that was chosen for one optimizer is a better guess for another than none.
        chosen: str | ClassConfig = lighter
        value: Any = lighter
        if isinstance(rate, int | float):
            chosen = ClassConfig(class_name=_CLASSES[lighter], config={"learning_rate": rate})
            value = {"class_name": chosen.class_name, "config": chosen.config}
        yield at.varied(
            "sgd without momentum" if (lighter, name) == ("sgd", "sgd with momentum") else f"{lighter} for {name}",
            {"training.optimizer": value},
            spec=at.training(optimizer=chosen),
            candidate=dataclasses.replace(at.candidate, optimizer=None),
        )


def _shorter(at: _At) -> Iterator[Variation]:
    """About half the sequence: a length that the spec searches, if one is near."""
    length, searched = at.candidate.sequence_length, at.spec.space.sequence_lengths
    if length is None:
        return
    shorter = max((one for one in searched or () if one < length), key=lambda one: -abs(one - length / 2), default=0)
    if not 0.25 * length <= shorter <= 0.8 * length:
        shorter = length // 2
    yield at.varied(
        f"a sequence of {shorter}",
        {"search.sequence_length": shorter},
        candidate=dataclasses.replace(at.candidate, sequence_length=max(1, shorter)),
        not_for="the sequence is one step long" if length < 2 else "",
    )


def _lighter_cells(at: _At, anatomy: Anatomy | None) -> Iterator[Variation]:
    if anatomy is None or "LSTM" not in anatomy.layer_classes:
        return
    yield at.varied(
        "GRU for LSTM",
        {},
        spec=dataclasses.replace(at.spec, variant=ModelVariant.GRU_FOR_LSTM),
        not_for="its own training code makes the model" if at.spec.model.trains_itself else "",
    )


def _xla(at: _At, own: str, uses_xla: bool | None) -> Iterator[Variation]:
    wanted = not uses_xla
    if at.spec.training.run_eagerly:
        own = own or "training.run_eagerly is set"
    yield at.varied(
        f"XLA {'on' if wanted else 'off'}",
        {"training.jit_compile": wanted},
        spec=at.training(jit_compile=wanted),
        needs_xla=wanted,
        not_for=own,
    )
