"""A spec's `search` as the space that it spans, and what can be wrong with it although its types are right."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from oomtune import domain
from oomtune.spec import schema
from oomtune.spec.sections import KerasObject, Percentiles, Range, Remat
from oomtune.spec.text import Path_

_SCALES = "LossScaleOptimizer"
_LENGTH = "sequence_length"
_MOST_LENGTHS = 2_000

Wrong = tuple[Path_, str]


def search_space(spec: schema.Spec, every_lane: bool) -> domain.SearchSpace:
    search, effective = spec.search, spec.training.effective_batch_size
    batches: Sequence[int] = _axis(search.batch_size)
    batches = batches[bisect_left(batches, search.min_batch_size) :]
    if effective is not None:
        # More than the smallest batch that reaches the effective one was not asked for.
        batches = batches[: bisect_left(batches, effective) + 1]
    lengths = search.sequence_length
    # What percentiles stand for is known when the data was read.
    known = () if lengths is None or isinstance(lengths, Percentiles) else tuple(_axis(lengths))
    return domain.SearchSpace(
        batch_sizes=batches,
        sequence_lengths=None if lengths is None else known[bisect_left(known, search.min_sequence_length or 1) :],
        most_buckets=search.buckets,
        precisions=tuple(dict.fromkeys(search.precision)),
        remats=remat_choices(search.remat),
        optimizers=tuple(class_name(entry) for entry in search.optimizer) if search.optimizer else (None,),
        effective_batch_size=effective,
        objective=domain.Objective(search.objective),
        resolution=search.resolution,
        every_lane=every_lane,
        confirm_steps=spec.trial.confirm_steps,
    )


def remat_choices(entries: list[Remat]) -> tuple[domain.Remat, ...]:
    """Return `none`, `full` and each list of layers as a choice. Layers outside a list are one choice together."""
    modes = {str(mode): mode for mode in domain.RematMode}
    loose = tuple(entry for entry in entries if isinstance(entry, str) and entry not in modes)
    choices: list[domain.Remat] = []
    for entry in entries:
        if isinstance(entry, list):
            choices.append(domain.RematLayers(tuple(entry)))
        else:
            choices.append(modes.get(entry) or domain.RematLayers(loose))
    return tuple(dict.fromkeys(choices))


def named(entry: str | KerasObject) -> str | domain.ClassConfig:
    return entry if isinstance(entry, str) else domain.ClassConfig(class_name=entry.class_name, config=entry.config)


def class_name(entry: str | KerasObject) -> str:
    return entry if isinstance(entry, str) else entry.class_name


def _axis(axis: int | list[int] | Range) -> range | tuple[int, ...]:
    if isinstance(axis, Range):
        return axis.values()
    return tuple(sorted(set(axis))) if isinstance(axis, list) else (axis,)


def wrong_in_search(spec: schema.Spec) -> Iterator[Wrong]:
    search, effective, batches = spec.search, spec.training.effective_batch_size, _axis(spec.search.batch_size)
    if search.min_batch_size > batches[-1]:
        message = f"expected at most the largest batch size, {batches[-1]}; got {search.min_batch_size}"
        yield ("search", "min_batch_size"), message
    elif effective is not None and effective < (least := batches[bisect_left(batches, search.min_batch_size)]):
        message = f"expected at least the smallest batch size, {least}; got {effective}"
        yield ("training", "effective_batch_size"), message
    if search.objective == _LENGTH and search.sequence_length is None:
        yield ("search", "objective"), "needs search.sequence_length, which is not set"
    yield from _wrong_in_lengths(spec)
    names = [class_name(entry).lower() for entry in search.optimizer or ()]
    twice = next((index for index, name in enumerate(names) if name in names[:index]), None)
    if twice is not None:
        yield ("search", "optimizer", twice), f"{names[twice]} is listed twice"
    yield from _wrong_in_optimizers(spec)
    if spec.model.script is not None or spec.model.train_step is not None:
        way = "script" if spec.model.script is not None else "train_step"
        if search.optimizer is not None:
            yield ("search", "optimizer"), f"a {way} has its own optimizer; leave this key out"
        if remat_choices(search.remat) != (domain.RematMode.NONE,):
            yield ("search", "remat"), f"a {way} builds its model by itself: call oomtune.keras.rematerialise there"


def _wrong_in_optimizers(spec: schema.Spec) -> Iterator[Wrong]:
    if spec.training.effective_batch_size is None:
        return
    message = "can't add gradients up for training.effective_batch_size; name the optimizer inside it: mixed_float16 "
    message += "scales the loss by itself"
    if class_name(spec.training.optimizer) == _SCALES:
        yield ("training", "optimizer"), f"{_SCALES} {message}"
    for index, entry in enumerate(spec.search.optimizer or ()):
        if class_name(entry) == _SCALES:
            yield ("search", "optimizer", index), f"{_SCALES} {message}"


def _wrong_in_lengths(spec: schema.Spec) -> Iterator[Wrong]:
    lengths, least = spec.search.sequence_length, spec.search.min_sequence_length
    if lengths is None:
        if least is not None:
            yield ("search", "min_sequence_length"), "needs search.sequence_length, which is not set"
    elif isinstance(lengths, Percentiles):
        if spec.dataset is None or spec.dataset.synthetic is not None:
            yield ("search", _LENGTH, "percentiles"), "needs a dataset that is not synthetic"
    elif len(_axis(lengths)) > _MOST_LENGTHS:
        message = f"gives {len(_axis(lengths)):,} lengths, more than {_MOST_LENGTHS:,}; raise multiple_of"
        yield ("search", _LENGTH), message
    elif least is not None and least > _axis(lengths)[-1]:
        message = f"expected at most the longest sequence, {_axis(lengths)[-1]}; got {least}"
        yield ("search", "min_sequence_length"), message
