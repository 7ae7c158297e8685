"""What is checked: a file, the answer in it if it has one, and the one configuration that this comes to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oomtune.commands.check.options import CheckOptions
from oomtune.domain import BucketTurns, Candidate, Confirm, Purpose, Trial, parse_remat
from oomtune.errors import UsageProblem
from oomtune.spec import Document, LoadedSpec, load_spec, read_document
from oomtune.storage.atomic import check_writable
from oomtune.storage.tuned import TunedConfig, load_tuned


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    path: Path
    document: Document
    """The file as it is, without what was said beside it."""
    loaded: LoadedSpec
    tuned: TunedConfig | None
    taken_over: Path | None = None
    """The spec that the answer was found for, where that was edited since and is searched in place of the one here."""

    @property
    def where(self) -> str:
        """The line that names the batch size."""
        return self.document.place(("search", "batch_size") if self.tuned is None else ("tuned", "batch_size"))


def read_subject(path: Path, options: CheckOptions) -> Subject:
    """Read the file; raises when it can't be checked, or not in this way."""
    document = read_document(path)
    tuned = load_tuned(path) if "tuned" in document.values else None
    loaded = load_spec(path, settings=options.settings, flags=options.flags())
    if options.update and tuned is None:
        raise UsageProblem(
            f"{path} holds no answer that --update could replace", hint=f"find one: oomtune probe {path}"
        )
    if options.update:
        check_writable(path, flag="--update", force=True, is_ours=lambda _: True)
    return Subject(path=path, document=document, loaded=loaded, tuned=tuned)


def candidate_of(tuned: TunedConfig | None, loaded: LoadedSpec) -> Candidate:
    """The tuned configuration, or the one that a plain spec leaves once its data was read."""
    if tuned is None:
        return _fixed(loaded)
    optimizer = tuned.training.get("optimizer")
    name = optimizer.get("class_name") if isinstance(optimizer, dict) else optimizer
    return Candidate(
        batch_size=tuned.batch_size,
        sequence_length=tuned.sequence_length,
        precision=tuned.precision,
        remat=parse_remat(tuned.remat),
        optimizer=name if name in loaded.spec.space.optimizers else None,
    )


def _fixed(loaded: LoadedSpec) -> Candidate:
    space = loaded.spec.space
    axes: dict[str, Sequence[Any]] = {
        "batch_size": space.batch_sizes,
        "sequence_length": space.sequence_lengths or (None,),
        "precision": space.precisions,
        "remat": space.remats,
        "optimizer": space.optimizers,
    }
    for name, values in axes.items():
        if len(values) > 1:
            raise UsageProblem(
                f"{loaded.path}: search.{name} leaves a choice of {len(values)}, and a check is of one configuration",
                hint=f"check the tuned config that a probe wrote, or say which: --set search.{name}={_shown(values)}",
            )
    return space.lanes()[0].at(space.batch_sizes[0])


def _shown(values: Sequence[Any]) -> str:
    first = values[0]
    return str(first) if isinstance(first, int) else f"'[{first}]'"


def check_buckets(subject: Subject, loaded: LoadedSpec) -> None:
    """Raise where a file has buckets, and its data no lengths to go into them. A probe writes no such file."""
    if subject.tuned is None or not subject.tuned.bucket_boundaries:
        return
    if loaded.spec.scan is None or not loaded.spec.scan.lengths:
        raise UsageProblem(
            "tuned.bucket_boundaries: buckets are for samples of several lengths, and this dataset has none",
            where=subject.document.place(("tuned", "bucket_boundaries")),
            hint="remove bucket_boundaries and bucket_batch_sizes, or name the dataset that they were found for",
        )


def trials_of(candidate: Candidate, tuned: TunedConfig | None) -> list[Trial]:
    """The configuration itself, and its buckets by turns when it has any."""
    trials: list[Trial] = [Confirm(candidate=candidate)]
    if tuned is not None and tuned.bucket_boundaries:
        buckets = tuple(zip(tuned.bucket_boundaries, tuned.bucket_batch_sizes, strict=True))
        trials.append(BucketTurns(purpose=Purpose.CONFIRM, lane=candidate.lane, buckets=buckets))
    return trials
