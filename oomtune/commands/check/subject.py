"""What is checked: a file, the answer in it if there is one, and the single configuration to run."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oomtune.commands.check.changes import Edits, find_edits, load_edited_spec
from oomtune.commands.prepare import device_flags
from oomtune.domain import BucketTurns, Candidate, Confirm, Purpose, Trial, parse_remat
from oomtune.errors import SpecProblem, UsageProblem
from oomtune.spec import Document, LoadedSpec, load_spec, read_document
from oomtune.storage.atomic import check_writable
from oomtune.storage.tuned import TunedConfig, tuned_config
from oomtune.units import parse_share


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """What flags set beside the file; raises `UsageProblem` for a combination that makes no sense."""

    device: str | None = None
    memory_limit: str | int | None = None
    like: str | None = None
    against: str | None = None
    """A card whose budget the CPU gets."""
    settings: Sequence[str] = ()
    tolerance: float | str = 0.05
    """A share, `0.05` or `5%`."""
    allow_device_change: bool = False
    update: bool = False

    def __post_init__(self) -> None:
        _ = self.allowed_growth
        if self.against is not None and (self.device or self.memory_limit or self.like):
            raise UsageProblem("--against sets the device and its limit", hint="leave the other device options out")
        if self.against is not None and self.update:
            raise UsageProblem(
                f"--update writes what was measured here, but --against {self.against} only simulates that card",
                hint=f"leave one of them out; to tune for that card without it: oomtune probe --like {self.against!r}",
            )

    @property
    def allowed_growth(self) -> float:
        try:
            return parse_share(str(self.tolerance))
        except ValueError as error:
            raise UsageProblem(f"--tolerance {self.tolerance}: {error}") from None

    @property
    def allows_other_device(self) -> bool:
        """Whether the check may run on another device than the one that the answer was found on."""
        return self.allow_device_change or self.against is not None

    def flags(self) -> dict[str, tuple[str, Any]]:
        """Return the spec entries that these options set, each with its flag."""
        if self.against is None:
            return device_flags(self.device, self.memory_limit, self.like)
        return {"device.kind": ("--against", "cpu"), "device.like": ("--against", self.against)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    path: Path
    document: Document
    """The file as written, without flags."""
    loaded: LoadedSpec
    tuned: TunedConfig | None
    edits: Edits = field(default_factory=Edits)
    uses_edited_spec: bool = False
    """Whether the edited source spec was loaded in place of the copy in the file."""
    notices: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """The line that sets the batch size."""
        return self.document.place(("search", "batch_size") if self.tuned is None else ("tuned", "batch_size"))

    def as_searched(self, device_kind: str) -> LoadedSpec:
        """Return the spec as a probe on this kind of device would write it, with everything that flags have set."""
        loaded = self.loaded
        if loaded.spec.device.kind not in ("auto", device_kind):
            document = copy.deepcopy(loaded.document)
            document.override("device.kind", device_kind, "--allow-device-change")
            overridden = dict.fromkeys((*loaded.overridden, "device.kind"))
            loaded = dataclasses.replace(
                loaded, document=document, values=document.values, overridden=tuple(overridden)
            )
        if self.uses_edited_spec:
            return loaded
        # What was edited in the file stays in it, so it does not count as an edit of the spec later.
        overridden = dict.fromkeys((*loaded.overridden, *self.edits.keys_in_file))
        return dataclasses.replace(loaded, overridden=tuple(overridden))


def read_subject(path: Path, options: CheckOptions) -> Subject:
    """Read the file once. Raises if it can't be checked, or not with these options.

    With `update`, an edited source spec is loaded in place of its copy in the file, unless the file was edited too."""
    document = read_document(path)
    tuned = tuned_config(document.values, path) if "tuned" in document.values else None
    loaded = load_spec(document, settings=options.settings, flags=options.flags())
    if options.update and tuned is None:
        raise UsageProblem(
            f"{path} holds no answer that --update could replace", hint=f"find one: oomtune probe {path}"
        )
    if options.update:
        check_writable(path, flag="--update", force=True, is_ours=lambda _: True)
    if tuned is None:
        return Subject(path=path, document=document, loaded=loaded, tuned=None)
    source, notices = _read_source(path, loaded.source)
    edits = find_edits(document, tuned.evidence, source)
    uses_edited_spec = options.update and source is not None and edits.spec_edited and not edits.file_edited
    if uses_edited_spec and source is not None:
        loaded = load_edited_spec(document, tuned.evidence, source, settings=options.settings, flags=options.flags())
    return Subject(
        path=path,
        document=document,
        loaded=loaded,
        tuned=tuned,
        edits=edits,
        uses_edited_spec=uses_edited_spec,
        notices=notices,
    )


def _read_source(path: Path, source: Path | None) -> tuple[Document | None, tuple[str, ...]]:
    """Read the spec that the answer was found for, which may be gone or broken: a check does not depend on it."""
    if source is None or source == path.resolve() or not source.is_file():
        return None, ()
    try:
        return read_document(source), ()
    except SpecProblem as error:
        return None, (f"the spec that this was tuned from can't be read: {error.problems[0]}",)


def candidate_of(tuned: TunedConfig | None, loaded: LoadedSpec) -> Candidate:
    """Return the tuned configuration, or the only one that a plain spec allows once its data has been read."""
    if tuned is None:
        return _only_candidate(loaded)
    optimizer = tuned.training.get("optimizer")
    name = optimizer.get("class_name") if isinstance(optimizer, dict) else optimizer
    return Candidate(
        batch_size=tuned.batch_size,
        sequence_length=tuned.sequence_length,
        precision=tuned.precision,
        remat=parse_remat(tuned.remat),
        optimizer=name if name in loaded.spec.space.optimizers else None,
    )


def _only_candidate(loaded: LoadedSpec) -> Candidate:
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
            example = str(values[0]) if isinstance(values[0], int) else f"'[{values[0]}]'"
            raise UsageProblem(
                f"{loaded.path}: search.{name} has {len(values)} values, but a check runs a single configuration",
                hint=f"check the tuned config that a probe wrote, or choose one: --set search.{name}={example}",
            )
    return space.lanes()[0].at(space.batch_sizes[0])


def check_buckets(subject: Subject, loaded: LoadedSpec) -> None:
    """Raise if a hand-edited file has buckets but its data has no lengths."""
    if subject.tuned is None or not subject.tuned.bucket_boundaries:
        return
    if loaded.spec.scan is None or not loaded.spec.scan.lengths:
        raise UsageProblem(
            "tuned.bucket_boundaries: buckets need samples of different lengths, and this dataset has none",
            where=subject.document.place(("tuned", "bucket_boundaries")),
            hint="remove bucket_boundaries and bucket_batch_sizes, or name the dataset that they were found for",
        )


def trials_of(candidate: Candidate, tuned: TunedConfig | None) -> list[Trial]:
    """Return a trial of the configuration and, if it has buckets, one in which the buckets take turns."""
    trials: list[Trial] = [Confirm(candidate=candidate)]
    if tuned is not None and tuned.bucket_boundaries:
        buckets = tuple(zip(tuned.bucket_boundaries, tuned.bucket_batch_sizes, strict=True))
        trials.append(BucketTurns(purpose=Purpose.CONFIRM, lane=candidate.lane, buckets=buckets))
    return trials
