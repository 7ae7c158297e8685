"""A whole probe, from a spec to a tuned config: the way through the house in one place."""

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
from oomtune.commands.prepare import (
    deciding_files,
    device_flags,
    located,
    needed,
    pinned_environment,
    resolved_device,
    started_worker,
    versions,
    warn_of_unfenced_code,
    with_its_data,
)
from oomtune.commands.scan import said_of
from oomtune.devices import Resolved
from oomtune.devices.host import SHARE_OF_FREE, host_memory
from oomtune.diagnosis.nothing_fits import nothing_fits_error, smallest_failure
from oomtune.domain import Budget, Candidate, Kind, ProbeResult, Script, Search, TrialError, Verdict
from oomtune.domain.observer import Observer, SilentObserver
from oomtune.session import Limits, result_of, run_session
from oomtune.spec import LoadedSpec, load_spec
from oomtune.storage.ledger import SPARE, Ledger, ledger_folder
from oomtune.storage.ledger_format import About, ended_as
from oomtune.storage.tuned import (
    check_output,
    origin_from,
    spec_folder_from,
    tuned_beside,
    tuned_text,
    tuned_values,
    write_tuned,
)
from oomtune.trials.local import ForkRunner
from oomtune.trials.runner import TimeUp
from oomtune.trials.worker_host import WorkerHost
from oomtune.units import parse_seconds

# Set by TensorFlow users to change how ops and allocators behave; each changes what a trial would show.
_TELLING_VARIABLES = ("TF_ENABLE_ONEDNN_OPTS", "ONEDNN_MAX_CPU_ISA", "TF_GPU_ALLOCATOR", "TF_XLA_FLAGS", "XLA_FLAGS")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOptions:
    """What may be said beside the spec; each beats the spec's own entry."""

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
        """The spec's entries that these set, each with the flag that did."""
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
    fresh, max_trials and time_limit. A spec given as a mapping is only written when `output` says where. Raises an
    `OomtuneError` when nothing fits or a trial fails for a reason that is not memory.
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
    with started_worker() as starting:
        loaded = load_spec(source, settings=options.settings, flags=options.flags(), every_lane=options.frontier)
        output = _output_path(source, loaded, options)
        if output is not None:
            check_output(output, force=options.force)
        host = needed(starting)
        resolved = resolved_device(loaded, host)
        files = deciding_files(loaded)
        try:
            loaded = with_its_data(loaded, files, host, observer, deadline=limits.deadline)
        except TimeUp:
            result = _stopped_while_reading(loaded, resolved)
            return FinishedProbe(result=result, about=about_probe(loaded, resolved, output))
        key = _ledger_key(loaded, resolved, files)
        about = about_probe(loaded, resolved, output)
        result = _search(about, loaded, resolved, key, limits, options.fresh, observer, host)
    return write_answer(result, about, output)


def _stopped_while_reading(loaded: LoadedSpec, resolved: Resolved) -> ProbeResult:
    problem = TrialError(
        code="time_limit",
        message="stopped by --time-limit while the data was read, before the first trial",
        hint="give it more time; data that was read once is not read again until it changes",
    )
    result = result_of(loaded.spec, resolved.device, resolved.budget, (), Verdict.STOPPED, problem)
    return dataclasses.replace(result, environment=versions(), notices=resolved.notices, probed_at=_now())


def _output_path(source: object, loaded: LoadedSpec, options: ProbeOptions) -> Path | None:
    if options.output is not None:
        return Path(options.output)
    if isinstance(source, Mapping):
        return None
    if loaded.was_tuned and loaded.path.stem.endswith(".tuned"):
        return loaded.path
    return tuned_beside(loaded.path)


def _search(
    about: About,
    loaded: LoadedSpec,
    resolved: Resolved,
    key: dict[str, Any],
    limits: Limits,
    fresh: bool,
    observer: Observer,
    host: WorkerHost,
) -> ProbeResult:
    spec, device = loaded.spec, resolved.device
    limit_bytes = resolved.budget.limit_bytes
    # Of a card the limit is all that it can give, so there is no more to spare than the headroom.
    spare = SPARE if device.kind == "cpu" else resolved.budget.headroom
    folder = ledger_folder(loaded.path)
    with Ledger.open(folder, spec.name, key, limit_bytes=limit_bytes, spare=spare, fresh=fresh) as ledger:
        budget = Budget(limit_bytes=ledger.limit_bytes, headroom=resolved.budget.headroom)
        said = [] if spec.scan is None else said_of(spec.scan, spec)
        notices = (*ledger.notices, *resolved.notices, *said, *warn_of_unfenced_code(spec, host.fences_writes))
        ledger.begin(about, _now())
        observer.probe_started(spec, device, budget, len(ledger.records))
        for notice in notices:
            observer.notice(notice)
        runner = ForkRunner(
            spec=spec,
            device=device,
            budget=budget,
            notice=observer.notice,
            host=host,
            environment=ledger.environment,
        )
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
            result = _with_problem(result, loaded, runner, observer, limits)
        finally:
            runner.close()  # its host may be another than the one it was given
            ledger.keep_environment(runner.environment)
        needs = {"needs_environment": {**pinned_environment(), **runner.environment}}
        result = dataclasses.replace(
            result,
            environment={**versions(), **needs},
            ledger_path=str(ledger.path),
            notices=notices,
            probed_at=_now(),
        )
        ledger.end(ended_as(result))
        return result


def _with_problem(
    result: ProbeResult, loaded: LoadedSpec, runner: ForkRunner, observer: Observer, limits: Limits
) -> ProbeResult:
    """The same with what is to be said of an end without an answer."""
    problem = result.problem
    if result.verdict is Verdict.NOTHING_FITS:
        observer.notice("nothing fits; measuring what the smallest configuration needs")
        smallest, error = smallest_failure(result)
        problem = nothing_fits_error(result, smallest, _measure_need(smallest, result, runner, limits), error)
    elif result.verdict is Verdict.FAILED and problem is not None:
        problem = located(problem, loaded)
    return dataclasses.replace(result, problem=problem)


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
    """The file by which people know what was probed: the spec, or the script that needed none; empty for values."""
    if loaded.from_file:
        return str(loaded.path.resolve())
    model = loaded.spec.model
    return str((Path(loaded.spec.folder) / model.path).resolve()) if isinstance(model, Script) else ""


def _measure_need(smallest: Candidate, result: ProbeResult, runner: ForkRunner, limits: Limits) -> int | None:
    """What the smallest configuration uses when it has the machine's memory; None where that can't be given, or there
    is no time left to see it."""
    free_bytes = int(host_memory().free_bytes * SHARE_OF_FREE)
    ran_out = any(record.outcome.kind is Kind.DEVICE_OOM for record in result.records)
    if result.device.kind != "cpu" or not ran_out or free_bytes <= result.budget.limit_bytes:
        return None
    runner.budget = Budget(limit_bytes=free_bytes, headroom=0.0)  # the runner's last trial
    within_s = None if limits.deadline is None else limits.deadline - time.monotonic()
    try:
        outcome = runner.run(Search(candidate=smallest), within_s=within_s)
    except TimeUp:
        return None
    return outcome.peak_bytes if outcome.kind is Kind.FITS else None


def _ledger_key(loaded: LoadedSpec, resolved: Resolved, files: dict[str, str]) -> dict[str, Any]:
    """All that could change what a trial would show."""
    asked = loaded.spec.device
    automatic = asked.memory_limit_bytes is None and asked.like is None
    return {
        "spec": loaded.sha256,
        "folder": loaded.spec.folder,
        "files": files,
        # What a function returns may depend on more than its file.
        "data": None if loaded.spec.scan is None else dataclasses.asdict(loaded.spec.scan),
        "device": dataclasses.asdict(resolved.device),
        "limit_bytes": "auto" if automatic else resolved.budget.limit_bytes,
        "python": platform.python_version(),
        "variables": {name: os.environ.get(name) for name in _TELLING_VARIABLES},
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
        spec_sha256=about.spec_sha256,
        probed_at=result.probed_at,
        folder=spec_folder_from(Path(about.output), about.spec.folder),
        origin=about.origin,
    )
    return tuned_text(values)
