"""What `oomtune probe` does: from a spec to a tuned config, in one place."""

from __future__ import annotations

import dataclasses
import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from oomtune import errors
from oomtune.commands.prepare import Prepared, device_flags, prepare, unfenced_code_notices, versions, with_location
from oomtune.commands.scan import describe_scan
from oomtune.devices import Resolved
from oomtune.devices.host import SHARE_OF_FREE, host_memory
from oomtune.diagnosis.nothing_fits import nothing_fits_error, smallest_failure
from oomtune.domain import Budget, Candidate, Kind, ProbeResult, Script, Search, TrialError, Verdict
from oomtune.domain.observer import Observer, SilentObserver
from oomtune.session import Limits, result_of, run_session
from oomtune.spec import LoadedSpec, load_spec
from oomtune.storage.ledger import LIMIT_DRIFT, Ledger, ledger_folder
from oomtune.storage.ledger_format import About, ended_from
from oomtune.storage.tuned import (
    check_output,
    origin_from,
    tuned_beside,
    tuned_text,
    tuned_values,
    write_tuned,
)
from oomtune.trials.local import ForkRunner
from oomtune.trials.runner import TimeUp
from oomtune.units import parse_seconds

# TensorFlow users set these to change how ops and allocators behave; each changes what a trial shows.
_TRIAL_VARIABLES = ("TF_ENABLE_ONEDNN_OPTS", "ONEDNN_MAX_CPU_ISA", "TF_GPU_ALLOCATOR", "TF_XLA_FLAGS", "XLA_FLAGS")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOptions:
    """What flags set beside the spec; each overrides the spec's own entry."""

    device: str | None = None
    memory_limit: str | int | None = None
    like: str | None = None
    objective: str | None = None
    settings: Sequence[str] = ()
    output: str | Path | None = None
    force: bool = False
    frontier: bool = False
    fresh: bool = False
    max_trials: int | None = None
    time_limit: str | float | None = None

    def flags(self) -> dict[str, tuple[str, Any]]:
        """Return the spec entries that these options set, each with its flag."""
        objective = {} if self.objective is None else {"search.objective": ("--objective", self.objective)}
        return device_flags(self.device, self.memory_limit, self.like) | objective

    def limits(self) -> Limits:
        if self.max_trials is not None and self.max_trials < 1:
            raise errors.UsageProblem(f"--max-trials {self.max_trials}: expected 1 or more")
        try:
            seconds = None if self.time_limit is None else parse_seconds(str(self.time_limit))
        except ValueError as error:
            raise errors.UsageProblem(f"--time-limit {self.time_limit}: {error}") from None
        return Limits(max_trials=self.max_trials, deadline=None if seconds is None else time.monotonic() + seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedProbe:
    """A probe that has ended, however it ended, with everything that a report of it needs."""

    result: ProbeResult
    about: About
    tuned_text: str = ""
    """The tuned config as written; empty if there is none."""


def script_spec(script: Path, arguments: Sequence[str]) -> dict[str, Any]:
    """Return the spec of a script that is probed from the command line, without a spec file."""
    return {"name": script.stem, "model": {"script": {"path": str(script), "args": list(arguments)}}}


def probe(spec: str | Path | Mapping[str, Any], **overrides: Any) -> ProbeResult:
    """Find the largest configuration that trains, and write the tuned config beside the spec.

    Overrides are the command's options: device, memory_limit, like, objective, settings, output, force, frontier,
    fresh, max_trials and time_limit. The answer to a spec given as a mapping is only written if `output` says where.
    Raises an `OomtuneError` if nothing fits or a trial fails for a reason other than memory.
    """
    result = run_probe(spec, ProbeOptions(**overrides), SilentObserver()).result
    problem = result.problem
    if problem is not None and result.verdict is Verdict.NOTHING_FITS:
        raise errors.NothingFits(problem.message, hint=problem.hint)
    if problem is not None and result.verdict is Verdict.FAILED:
        raise errors.TrialCrashed(problem.message, hint=problem.hint, traceback=problem.traceback)
    if result.verdict is Verdict.INTERRUPTED:
        raise KeyboardInterrupt
    return result


def run_probe(source: str | Path | Mapping[str, Any], options: ProbeOptions, observer: Observer) -> FinishedProbe:
    """Run a probe and report its progress to an observer; return a result for every way a search can end."""
    limits = options.limits()
    with prepare(observer) as preparation:
        loaded = load_spec(source, settings=options.settings, flags=options.flags(), every_lane=options.frontier)
        output = _output_path(source, loaded, options)
        if output is not None:
            check_output(output, force=options.force)
        resolved = preparation.resolve_device(loaded)
        try:
            prepared = preparation.read_data(loaded, resolved, deadline=limits.deadline)
        except TimeUp:
            about = about_probe(loaded, resolved, output)
            return FinishedProbe(result=_stopped_while_reading(about, resolved), about=about)
        about = about_probe(prepared.loaded, resolved, output)
        result = _search(prepared, about, limits, observer, fresh=options.fresh)
    return write_answer(result, about, output)


def _stopped_while_reading(about: About, resolved: Resolved) -> ProbeResult:
    problem = TrialError(
        code="time_limit",
        message="stopped by --time-limit while the data was being read, before the first trial",
        hint="allow more time; once data has been read, it is not read again until it changes",
    )
    result = result_of(about.spec, resolved.device, resolved.budget, (), Verdict.STOPPED, problem)
    return dataclasses.replace(result, environment=versions(), notices=resolved.notices, probed_at=_now())


def _output_path(source: object, loaded: LoadedSpec, options: ProbeOptions) -> Path | None:
    if options.output is not None:
        return Path(options.output)
    if isinstance(source, Mapping):
        return None
    if loaded.was_tuned and loaded.path.stem.endswith(".tuned"):
        return loaded.path
    return tuned_beside(loaded.path)


def _search(prepared: Prepared, about: About, limits: Limits, observer: Observer, *, fresh: bool) -> ProbeResult:
    spec, device = prepared.spec, prepared.device
    limit_bytes, headroom = prepared.budget.limit_bytes, prepared.budget.headroom
    with Ledger.open(
        ledger_folder(prepared.loaded.path),
        spec.name,
        _ledger_key(prepared),
        limit_bytes=limit_bytes,
        # A card's limit is all that the card can give: only the headroom is left to spare.
        max_drift=LIMIT_DRIFT if device.kind == "cpu" else headroom,
        fresh=fresh,
    ) as ledger:
        notices = (
            *ledger.notices,
            *prepared.notices,
            *describe_scan(spec),
            *unfenced_code_notices(spec, prepared.host.fences_writes),
        )
        budget = Budget(limit_bytes=ledger.limit_bytes, headroom=headroom)
        ledger.begin(about, _now())
        observer.probe_started(spec, device, budget, len(ledger.records))
        for notice in notices:
            observer.notice(notice)
        runner = prepared.runner(budget=budget, environment=ledger.environment)
        try:
            result = run_session(
                spec,
                device,
                budget,
                runner=runner,
                ledger=ledger,
                earlier=tuple(ledger.records),
                observer=observer,
                limits=limits,
            )
            result = _with_explained_problem(result, prepared.loaded, runner, observer, limits)
        finally:
            runner.close()
            ledger.save_environment(runner.environment)
        result = dataclasses.replace(
            result,
            environment=prepared.environment,
            ledger_path=str(ledger.path),
            notices=notices,
            probed_at=_now(),
        )
        ledger.end(ended_from(result))
        return result


def _with_explained_problem(
    result: ProbeResult, loaded: LoadedSpec, runner: ForkRunner, observer: Observer, limits: Limits
) -> ProbeResult:
    """Add to a probe without an answer what the smallest configuration needs, or where in the spec the problem is."""
    problem = result.problem
    if result.verdict is Verdict.NOTHING_FITS:
        observer.notice("nothing fits; measuring what the smallest configuration needs")
        smallest, error = smallest_failure(result)
        problem = nothing_fits_error(result, smallest, _measure_need(smallest, result, runner, limits), error)
    elif result.verdict is Verdict.FAILED and problem is not None:
        problem = with_location(problem, loaded)
    return dataclasses.replace(result, problem=problem)


def _measure_need(smallest: Candidate, result: ProbeResult, runner: ForkRunner, limits: Limits) -> int | None:
    """Return the peak of the smallest configuration when it may use all free memory.

    Return None if the machine has no more to give, or if there is no time left to run it."""
    free_bytes = int(host_memory().free_bytes * SHARE_OF_FREE)
    ran_out = any(record.outcome.kind is Kind.DEVICE_OOM for record in result.records)
    if result.device.kind != "cpu" or not ran_out or free_bytes <= result.budget.limit_bytes:
        return None
    runner.budget = Budget(limit_bytes=free_bytes, headroom=0.0)  # this is the runner's last trial
    within_s = None if limits.deadline is None else limits.deadline - time.monotonic()
    try:
        outcome = runner.run(Search(candidate=smallest), within_s=within_s)
    except TimeUp:
        return None
    return outcome.peak_bytes if outcome.kind is Kind.FITS else None


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def about_probe(loaded: LoadedSpec, resolved: Resolved, output: Path | None) -> About:
    """Describe a probe for later reports, when its spec may have changed or be gone."""
    return About(
        spec=loaded.spec,
        spec_path=_probed_file(loaded),
        spec_sha256=loaded.sha256,
        values=loaded.values,
        device=resolved.device,
        headroom=resolved.budget.headroom,
        environment=versions(),
        output=None if output is None else str(output.resolve()),
        origin={} if output is None else origin_from(output, loaded.source, loaded.overridden),
    )


def _probed_file(loaded: LoadedSpec) -> str:
    """Return the file that people know the probe by: the spec, or a script without one; empty for values."""
    if loaded.from_file:
        return str(loaded.path.resolve())
    model = loaded.spec.model
    return str((Path(loaded.spec.folder) / model.path).resolve()) if isinstance(model, Script) else ""


def _ledger_key(prepared: Prepared) -> dict[str, Any]:
    """Return everything that could change what a trial shows."""
    spec, request = prepared.spec, prepared.spec.device
    is_automatic = request.memory_limit_bytes is None and request.like is None
    return {
        "spec": prepared.loaded.sha256,
        "folder": spec.folder,
        "files": prepared.files,
        # The result of a Python function may depend on more than its file.
        "data": None if spec.scan is None else dataclasses.asdict(spec.scan),
        "device": dataclasses.asdict(prepared.device),
        "limit_bytes": "auto" if is_automatic else prepared.budget.limit_bytes,
        "python": platform.python_version(),
        "variables": {name: os.environ.get(name) for name in _TRIAL_VARIABLES},
        **versions(),
    }


def write_answer(result: ProbeResult, about: About, output: Path | None) -> FinishedProbe:
    """Write the tuned config if there is an answer; an interrupted search leaves an earlier one in place."""
    result = dataclasses.replace(result, probed_at=result.probed_at or _now())
    text = answer_text(result, about)
    if text and output is not None:
        write_tuned(output, text)
        result = dataclasses.replace(result, tuned_path=str(output))
    return FinishedProbe(result=result, about=about, tuned_text=text)


def answer_text(result: ProbeResult, about: About) -> str:
    """Return the tuned config of a probe that found an answer and has an output; otherwise an empty string."""
    if about.output is None or result.best is None or result.verdict not in (Verdict.TUNED, Verdict.STOPPED):
        return ""
    values = tuned_values(
        about.values,
        result,
        output=Path(about.output),
        spec_sha256=about.spec_sha256,
        origin=about.origin,
    )
    return tuned_text(values)
