"""The course of a check: read, find the device, run, compare with the evidence, and search again if asked to."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oomtune.commands.check.changes import changes_since
from oomtune.commands.check.place import Place, find_place
from oomtune.commands.check.subject import (
    CheckOptions,
    Subject,
    candidate_of,
    check_buckets,
    read_subject,
    trials_of,
)
from oomtune.commands.check.update import update
from oomtune.commands.prepare import Prepared, prepare, with_location
from oomtune.commands.probe import about_probe, write_answer
from oomtune.domain import (
    BucketTurns,
    Budget,
    CheckResult,
    CheckVerdict,
    Kind,
    Outcome,
    ProbeResult,
    Trial,
    TrialError,
    TrialRecord,
)
from oomtune.domain.observer import Observer, SilentObserver
from oomtune.spec import LoadedSpec
from oomtune.storage.tuned import TunedConfig
from oomtune.trials.outcome import over_headroom_error
from oomtune.trials.runner import Runner

# Peaks differ from run to run, so a failure about memory must show twice. A crash does not: that is the model.
_ATTEMPTS = 2


def check(path: str | Path, **overrides: Any) -> CheckResult:
    """Return whether a config, tuned or plain, still fits.

    Overrides are the command's options: device, memory_limit, like, against, settings, tolerance, allow_device_change
    and update."""
    return run_check(Path(path), CheckOptions(**overrides), SilentObserver())


def run_check(path: Path, options: CheckOptions, observer: Observer) -> CheckResult:
    """Run a check and report its progress to an observer."""
    with prepare(observer) as preparation:
        subject = read_subject(path, options)
        request = subject.loaded.spec.device
        place = find_place(
            request,
            subject.tuned.evidence if subject.tuned else None,
            *preparation.visible_gpus(request.kind),
            device_named=options.device is not None,
            allow_other_device=options.allows_other_device,
            allow_smaller=not options.update,
        )
        if place.refused:
            return _wrong_device(subject, place, options)
        prepared = preparation.read_data(subject.loaded, place.resolved)
        check_buckets(subject, prepared.loaded)
        result = result_before_run(subject, prepared.loaded, place, options)
        observer.probe_started(prepared.spec, result.device, result.budget, 0)
        for notice in result.notices:
            observer.notice(notice)
        return _run(result, subject, place, options, prepared, observer)


def result_before_run(subject: Subject, loaded: LoadedSpec, place: Place, options: CheckOptions) -> CheckResult:
    """Return everything that is known before the run, with the verdict that the run has to earn."""
    tuned, resolved, edits = subject.tuned, place.resolved, subject.edits
    reason = _why_not_compared(tuned, place)
    return CheckResult(
        verdict=CheckVerdict.FITS,
        path=str(subject.path),
        where=subject.where,
        name=loaded.spec.name,
        candidate=candidate_of(tuned, loaded),
        device=resolved.device,
        budget=resolved.budget,
        tolerance=options.allowed_growth,
        card_limit_bytes=place.card_limit_bytes,
        was_tuned=tuned is not None,
        confirmed=tuned is None or tuned.confirmed,
        expected_peak_bytes=None if tuned is None or reason else tuned.peak_bytes,
        not_compared=reason,
        spec_diff=edits.lines,
        file_edited=edits.file_edited,
        spec_edited=edits.spec_edited,
        uses_edited_spec=subject.uses_edited_spec,
        notices=(*resolved.notices, *subject.notices),
    )


def _why_not_compared(tuned: TunedConfig | None, place: Place) -> str:
    """Return why the peak can't be compared with the evidence; empty if it can, or if there is no evidence."""
    if tuned is None:
        return ""
    if place.other_device is not None:
        return "it was on another device, so growth is not checked"
    if not tuned.confirmed:
        # A short trial of the search uses less than a whole run with validation.
        return "the answer was not confirmed, because its search was stopped, so growth is not checked"
    return "" if tuned.peak_bytes else "not known: the evidence has no peak_bytes, so growth is not checked"


def _wrong_device(subject: Subject, place: Place, options: CheckOptions) -> CheckResult:
    result = result_before_run(subject, subject.loaded, place, options)
    changes = (place.other_device,) if place.other_device is not None else ()
    return dataclasses.replace(result, verdict=CheckVerdict.WRONG_DEVICE, changes=changes)


def _run(
    result: CheckResult,
    subject: Subject,
    place: Place,
    options: CheckOptions,
    prepared: Prepared,
    observer: Observer,
) -> CheckResult:
    tuned, loaded = subject.tuned, prepared.loaded
    # An update writes an answer, which has to stay within the budget itself.
    budget = result.budget if options.update else Budget.of(result.budget.limit_bytes, result.allowed_bytes)
    # Figures can only be compared if the run has the variables that the answer was found with.
    runner = prepared.runner(budget=budget, environment={} if tuned is None else tuned.environment)

    def write(searched: ProbeResult) -> ProbeResult:
        about = about_probe(subject.as_searched(place.resolved.device.kind), place.resolved, subject.path)
        answer = dataclasses.replace(searched, environment=prepared.environment)
        return write_answer(answer, about, subject.path).result

    result, records = run_trials(result, _trials(result, subject, loaded), runner, observer)
    if result.verdict is CheckVerdict.BROKEN and result.problem is not None:
        problem = with_location(result.problem, loaded)
        result = dataclasses.replace(result, problem=problem, where=problem.where or loaded.place("model"))
    if tuned is not None:
        changes = changes_since(tuned, subject.document, result, place, runner.environment)
        result = dataclasses.replace(result, changes=changes)
    return update(result, records, loaded.spec, runner, observer, write) if options.update else result


def _trials(result: CheckResult, subject: Subject, loaded: LoadedSpec) -> list[Trial]:
    """Return the trials of the answer; none if an edited spec no longer allows it, which leaves only a search."""
    space, candidate = loaded.spec.space, result.candidate
    is_allowed = candidate.lane in space.lanes() and candidate.batch_size in space.batch_sizes
    return trials_of(candidate, subject.tuned) if is_allowed or not result.uses_edited_spec else []


def run_trials(
    result: CheckResult, trials: Sequence[Trial], runner: Runner, observer: Observer
) -> tuple[CheckResult, list[TrialRecord]]:
    """Return the verdict, and every trial with its outcome."""
    history: list[TrialRecord] = []
    for trial in trials:
        for _ in range(_ATTEMPTS):
            observer.trial_started(trial, len(history) + 1)
            outcome = runner.run(trial)
            history.append(TrialRecord(number=len(history) + 1, trial=trial, outcome=outcome))
            observer.trial_ended(history[-1], history)
            result = _with_outcome(result, trial, outcome)
            if result.verdict in (CheckVerdict.FITS, CheckVerdict.BROKEN):
                break
        if result.verdict is not CheckVerdict.FITS:
            break
    return _undecided_if_smaller(result), history


def _undecided_if_smaller(result: CheckResult) -> CheckResult:
    """Return no verdict on the card for what ran out of less memory than the card has: it may still fit."""
    ran_out = result.deciding is not None and result.deciding.kind in (Kind.DEVICE_OOM, Kind.HOST_OOM)
    if result.card_limit_bytes is None or result.verdict is not CheckVerdict.DOES_NOT_FIT or not ran_out:
        return result
    return dataclasses.replace(result, verdict=CheckVerdict.UNDECIDED)


def _with_outcome(result: CheckResult, trial: Trial, outcome: Outcome) -> CheckResult:
    """Judge an outcome. The evidence holds the peak of the configuration itself, not of its buckets."""
    if isinstance(trial, BucketTurns):
        result = dataclasses.replace(result, buckets_outcome=outcome)
    else:
        result = dataclasses.replace(result, outcome=outcome)
    verdict = _verdict(outcome, None if isinstance(trial, BucketTurns) else result.growth, result.tolerance)
    return dataclasses.replace(result, verdict=verdict, problem=_problem(result, outcome))


def _problem(result: CheckResult, outcome: Outcome) -> TrialError | None:
    error = outcome.error
    if error is None or not outcome.over_headroom or outcome.peak_bytes is None:
        return error
    return over_headroom_error(outcome.peak_bytes, result.budget, result.allowed_bytes)


def _verdict(outcome: Outcome, growth: float | None, tolerance: float) -> CheckVerdict:
    if outcome.kind is Kind.CRASH:
        return CheckVerdict.BROKEN
    if outcome.kind is not Kind.FITS:
        return CheckVerdict.DOES_NOT_FIT
    return CheckVerdict.USES_MORE if growth is not None and growth > tolerance else CheckVerdict.FITS
