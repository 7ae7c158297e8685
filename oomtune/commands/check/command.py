"""The way through a check: read, find the place, run, compare, and search anew if that was asked for."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from oomtune.commands.check.changes import changes_since
from oomtune.commands.check.options import CheckOptions
from oomtune.commands.check.origin import as_edited, edited_here, edits_since, load_edited
from oomtune.commands.check.place import Place, find_place
from oomtune.commands.check.running import run_trials
from oomtune.commands.check.subject import Subject, candidate_of, check_buckets, read_subject, trials_of
from oomtune.commands.check.updating import update
from oomtune.commands.prepare import (
    deciding_files,
    located,
    needed,
    pinned_environment,
    started_worker,
    versions,
    with_its_data,
)
from oomtune.commands.probe import about_probe, write_answer
from oomtune.domain import Budget, CheckResult, CheckVerdict, ProbeResult, Trial
from oomtune.domain.observer import Observer, SilentObserver
from oomtune.spec import LoadedSpec, load_spec
from oomtune.storage.tuned import TunedConfig
from oomtune.trials.local import ForkRunner
from oomtune.trials.worker_host import WorkerHost


def check(path: str | Path, **overrides: Any) -> CheckResult:
    """Does this config, tuned or plain, still fit? Overrides are the command's options: device, memory_limit, like,
    against, settings, tolerance, allow_device_change and update."""
    return run_check(Path(path), CheckOptions(**overrides), SilentObserver())


def run_check(path: Path, options: CheckOptions, observer: Observer) -> CheckResult:
    """The same, telling an observer what happens."""
    with started_worker() as starting:
        subject = as_edited(read_subject(path, options), options)
        host = needed(starting)
        place = find_place(subject, options, host)
        if place.refused:
            return _wrong_device(subject, place, options)
        loaded = with_its_data(subject.loaded, deciding_files(subject.loaded), host, observer)
        check_buckets(subject, loaded)
        result = before_the_run(subject, loaded, place, options)
        observer.probe_started(loaded.spec, result.device, result.budget, 0)
        for notice in result.notices:
            observer.notice(notice)
        return _run(result, subject, loaded, place, options, observer, host)


def before_the_run(subject: Subject, loaded: LoadedSpec, place: Place, options: CheckOptions) -> CheckResult:
    """All that is known of it; that it fits is what is now to be seen."""
    tuned, resolved = subject.tuned, place.resolved
    edits = edits_since(subject)
    why_not = _why_not_compared(tuned, place)
    return CheckResult(
        verdict=CheckVerdict.FITS,
        path=str(subject.path),
        where=subject.where,
        name=loaded.spec.name,
        candidate=candidate_of(tuned, loaded),
        device=resolved.device,
        budget=resolved.budget,
        tolerance=options.growth_allowed,
        card_limit_bytes=place.card_limit_bytes,
        was_tuned=tuned is not None,
        confirmed=tuned is None or tuned.confirmed,
        expected_peak_bytes=None if tuned is None or why_not else tuned.peak_bytes,
        not_compared=why_not,
        spec_diff=edits.lines,
        file_edited=edits.file_edited,
        spec_edited=edits.spec_edited,
        took_over=subject.taken_over is not None,
        notices=(*resolved.notices, *edits.notices),
    )


def _why_not_compared(tuned: TunedConfig | None, place: Place) -> str:
    """Why the peak can't be held against the evidence; empty where it can, or there is none."""
    if tuned is None:
        return ""
    if place.other is not None:
        return "it was on another device, so growth is not checked"
    if not tuned.confirmed:
        # What a short trial of the search uses is less than a whole run with validation does.
        return "it was not confirmed, as its search was stopped first, so growth is not checked"
    return "" if tuned.peak_bytes else "not known: the evidence has no peak_bytes, so growth is not checked"


def _wrong_device(subject: Subject, place: Place, options: CheckOptions) -> CheckResult:
    result = before_the_run(subject, subject.loaded, place, options)
    changes = (place.other,) if place.other is not None else ()
    return dataclasses.replace(result, verdict=CheckVerdict.WRONG_DEVICE, changes=changes)


def _run(
    result: CheckResult,
    subject: Subject,
    loaded: LoadedSpec,
    place: Place,
    options: CheckOptions,
    observer: Observer,
    host: WorkerHost,
) -> CheckResult:
    tuned = subject.tuned
    # What an update writes has to stay within the budget itself.
    budget = result.budget if options.update else Budget.of(result.budget.limit_bytes, result.allowed_bytes)
    runner = ForkRunner(
        spec=loaded.spec,
        device=result.device,
        budget=budget,
        notice=observer.notice,
        host=host,
        # Figures can only be compared under the settings that they were found with.
        environment={} if tuned is None else tuned.environment,
    )

    def write(found: ProbeResult) -> ProbeResult:
        needs = {"needs_environment": {**pinned_environment(), **runner.environment}}
        answer = dataclasses.replace(found, environment={**versions(), **needs})
        about = about_probe(_as_searched(subject, place, options), place.resolved, subject.path)
        return write_answer(answer, about, subject.path).result

    try:
        result, ran = run_trials(result, _what_to_run(result, subject, loaded), runner, observer)
        if result.verdict is CheckVerdict.BROKEN and result.problem is not None:
            problem = located(result.problem, loaded)
            result = dataclasses.replace(result, problem=problem, where=problem.where or loaded.place("model"))
        if tuned is not None:
            changes = changes_since(tuned, subject.document, result, place, runner.environment)
            result = dataclasses.replace(result, changes=changes)
        return update(result, ran, loaded.spec, runner, observer, write) if options.update else result
    finally:
        runner.close()  # its host may be another than the one it was given


def _what_to_run(result: CheckResult, subject: Subject, loaded: LoadedSpec) -> list[Trial]:
    """The answer, unless an edited spec does not allow it any more: then there is only something to search."""
    space, candidate = loaded.spec.space, result.candidate
    allowed = candidate.lane in space.lanes() and candidate.batch_size in space.batch_sizes
    return trials_of(candidate, subject.tuned) if allowed or not result.took_over else []


def _as_searched(subject: Subject, place: Place, options: CheckOptions) -> LoadedSpec:
    """The file with what was said beside it, as a probe would write it: the answer was found for that."""
    flags, kind = options.flags(), place.resolved.device.kind
    if subject.loaded.spec.device.kind not in ("auto", kind):
        flags["device.kind"] = ("--allow-device-change", kind)
    if subject.taken_over is not None:
        return load_edited(subject, subject.taken_over, options, flags)
    loaded = load_spec(subject.path, settings=options.settings, flags=flags)
    overridden = dict.fromkeys((*loaded.overridden, *edited_here(subject)))
    return dataclasses.replace(loaded, overridden=tuple(overridden))
