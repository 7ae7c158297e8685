"""A whole probe, from a spec to a tuned config: the way through the house in one place."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from oomtune import __version__, errors
from oomtune.devices import Resolved, ask_tensorflow, resolve
from oomtune.devices.host import SHARE_OF_FREE, host_memory
from oomtune.devices.nvml import nvml_cards
from oomtune.domain import Budget, Candidate, Kind, ProbeResult, Purpose, Trial, TrialError, Verdict
from oomtune.files import digests, is_file, modules_beside
from oomtune.ledger import Ledger, ledger_folder
from oomtune.observer import Observer, SilentObserver
from oomtune.report.advice import what_to_try
from oomtune.scanning import said_of, scan_data, with_data
from oomtune.session import Limits, run_session
from oomtune.spec import LoadedSpec, data_files, load_spec, named_modules
from oomtune.trials.host import WorkerHost
from oomtune.trials.process import ForkRunner
from oomtune.tuned import check_output, tuned_values, write_tuned
from oomtune.units import format_bytes, parse_seconds

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
        given = {
            "device.kind": ("--device", self.device),
            "device.memory_limit": ("--memory-limit", self.memory_limit),
            "device.like": ("--like", self.like),
            "search.objective": ("--objective", self.objective),
        }
        if self.memory_limit is not None and self.like is not None:
            raise errors.UsageProblem("--memory-limit and --like both set the limit", hint="keep one of them")
        return {key: (flag, value) for key, (flag, value) in given.items() if value is not None}

    def limits(self) -> Limits:
        if self.max_trials is not None and self.max_trials < 1:
            raise errors.UsageProblem(f"--max-trials {self.max_trials}: expected 1 or more")
        try:
            seconds = None if self.time_limit is None else parse_seconds(str(self.time_limit))
        except ValueError as error:
            raise errors.UsageProblem(f"--time-limit {self.time_limit}: {error}") from None
        return Limits(max_trials=self.max_trials, deadline=None if seconds is None else time.monotonic() + seconds)


def probe(spec: str | Path | Mapping[str, Any], **overrides: Any) -> ProbeResult:
    """Find the largest configuration that trains, and write the tuned config beside the spec.

    Overrides are the command's options: device, memory_limit, like, objective, settings, output, force, frontier,
    fresh, max_trials and time_limit. A spec given as a mapping is only written when `output` says where. Raises an
    `OomtuneError` when nothing fits or a trial fails for a reason that is not memory.
    """
    result = run_probe(spec, ProbeOptions(**overrides), SilentObserver())
    problem = result.problem
    if problem is not None and result.verdict is Verdict.NOTHING_FITS:
        raise errors.NothingFits(problem.message, hint=problem.hint)
    if problem is not None and result.verdict is Verdict.FAILED:
        raise errors.TrialCrashed(problem.message, hint=problem.hint, traceback=problem.traceback)
    if result.verdict is Verdict.INTERRUPTED:
        raise KeyboardInterrupt
    return result


def run_probe(source: str | Path | Mapping[str, Any], options: ProbeOptions, observer: Observer) -> ProbeResult:
    """The same, telling an observer what happens; a result is returned for every way a search can end."""
    limits = options.limits()
    have_tensorflow = importlib.util.find_spec("tensorflow") is not None
    # TensorFlow takes seconds to import: the worker begins before the spec is read.
    host = WorkerHost("fork", _pinned_environment()) if have_tensorflow else None
    try:
        loaded = load_spec(source, settings=options.settings, flags=options.flags(), every_lane=options.frontier)
        output = _output_path(source, loaded, options)
        if output is not None:
            check_output(output, force=options.force)
        if host is None:
            raise errors.TensorFlowMissing("TensorFlow is not installed", hint="pip install tensorflow")
        resolved = _resolve(loaded, host)
        files = _files(loaded)
        loaded = _with_data(loaded, files, host, observer)
        key = _ledger_key(loaded, resolved, files)
        result = _search(loaded, resolved, key, limits, options.fresh, observer, host)
    finally:
        if host is not None:
            host.close()
    return _write(result, loaded, output)


def _pinned_environment() -> dict[str, str]:
    # oneDNN changes peaks a lot, and whether it is on by default depends on the processor.
    return {"TF_ENABLE_ONEDNN_OPTS": os.environ.get("TF_ENABLE_ONEDNN_OPTS", "1")}


def _output_path(source: object, loaded: LoadedSpec, options: ProbeOptions) -> Path | None:
    if options.output is not None:
        return Path(options.output)
    if isinstance(source, Mapping):
        return None
    if loaded.was_tuned and loaded.path.stem.endswith(".tuned"):
        return loaded.path
    return loaded.path.with_name(f"{loaded.path.stem}.tuned.yaml")


def _resolve(loaded: LoadedSpec, host: WorkerHost) -> Resolved:
    request = loaded.spec.device
    gpus = () if request.kind == "cpu" else ask_tensorflow(host).gpus
    return resolve(request, gpus, nvml_cards() if gpus else None)


def _with_data(loaded: LoadedSpec, files: dict[str, str], host: WorkerHost, observer: Observer) -> LoadedSpec:
    """The spec with what its data showed."""
    spec = loaded.spec
    key = {"dataset": loaded.values.get("dataset"), "folder": spec.folder, "files": files, **_versions()}
    scan = scan_data(spec, key, ledger_folder(loaded.path), host, observer)
    return dataclasses.replace(loaded, spec=with_data(spec, scan))


def _search(
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
    with Ledger.open(ledger_folder(loaded.path), spec.name, key, limit_bytes=limit_bytes, fresh=fresh) as ledger:
        budget = Budget(limit_bytes=ledger.limit_bytes, headroom=resolved.budget.headroom)
        said = [] if spec.scan is None else said_of(spec.scan, spec)
        notices = (*ledger.notices, *resolved.notices, *said)
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
            if result.verdict is Verdict.NOTHING_FITS:
                observer.notice("nothing fits; measuring what the smallest configuration needs")
                result = dataclasses.replace(result, problem=_nothing_fits(result, runner))
        finally:
            runner.close()  # its host may be another than the one it was given
            ledger.keep_environment(runner.environment)
        needs = {"needs_environment": {**_pinned_environment(), **runner.environment}}
        return dataclasses.replace(
            result, environment={**_versions(), **needs}, ledger_path=str(ledger.path), notices=notices
        )


def _nothing_fits(result: ProbeResult, runner: ForkRunner) -> TrialError:
    """The smallest configuration that was tried, what it needs, and three things to try."""
    smallest = min((record.trial.candidate for record in result.records), key=lambda candidate: candidate.tokens)
    needed = _measure_need(smallest, result, runner)
    said = next(
        record.outcome.error.message
        for record in result.records
        if record.trial.candidate == smallest and record.outcome.error is not None
    )
    need = f"it needs {format_bytes(needed)}" if needed is not None else said
    return TrialError(
        code="nothing_fits",
        message=f"nothing fits in {format_bytes(result.budget.budget_bytes)} "
        f"(the limit of {format_bytes(result.budget.limit_bytes)} less {result.budget.headroom:.0%} headroom): "
        f"the smallest configuration tried was {smallest}, and {need}",
        hint="\n".join(what_to_try(result.spec, result.budget, smallest, needed)),
    )


def _measure_need(smallest: Candidate, result: ProbeResult, runner: ForkRunner) -> int | None:
    """What the smallest configuration uses when it has the machine's memory; None where that can't be given."""
    free_bytes = int(host_memory().free_bytes * SHARE_OF_FREE)
    ran_out = any(record.outcome.kind is Kind.DEVICE_OOM for record in result.records)
    if result.device.kind != "cpu" or not ran_out or free_bytes <= result.budget.limit_bytes:
        return None
    roomy = ForkRunner(
        spec=runner.spec,
        device=runner.device,
        budget=Budget(limit_bytes=free_bytes, headroom=0.0),
        notice=runner.notice,
        host=runner.host,
    )
    outcome = roomy.run(Trial(purpose=Purpose.SEARCH, candidate=smallest))
    return outcome.peak_bytes if outcome.kind is Kind.FITS else None


def _versions() -> dict[str, Any]:
    versions = {"oomtune": __version__}
    for name in ("tensorflow", "keras"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "unknown"
    return versions


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
        **_versions(),
    }


def _files(loaded: LoadedSpec) -> dict[str, str]:
    """Digests of the files beside the spec that decide what a trial does: the model's, the data, the user's code."""
    spec, folder = loaded.spec, Path(loaded.spec.folder)
    files = list(data_files(spec.dataset, folder))
    if spec.model.keras_file is not None:
        files.append(folder / spec.model.keras_file)
    if spec.model.script is not None:
        # What it imports and reads most often lies beside it, or is named in its arguments.
        files += modules_beside(folder / spec.model.script.path)
        files += [folder / argument for argument in spec.model.script.args]
    for name in named_modules([loaded.values.get("model"), loaded.values.get("dataset")]):
        module = folder.joinpath(*name.split("."))
        files += [module.with_suffix(".py"), module / "__init__.py"]
    try:
        return digests(path for path in files if is_file(path))
    except OSError as error:
        raise errors.DataUnreadable(f"{error.filename} can't be read: {error.strerror}") from None


def _write(result: ProbeResult, loaded: LoadedSpec, output: Path | None) -> ProbeResult:
    """Write the answer, if there is one; an interrupted search leaves what was there."""
    if output is None or result.best is None or result.verdict not in (Verdict.TUNED, Verdict.STOPPED):
        return result
    output_folder = output.resolve().parent
    elsewhere = output_folder != Path(loaded.spec.folder)
    values = tuned_values(
        loaded.values,
        result,
        spec_sha256=loaded.sha256,
        probed_at=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        folder=os.path.relpath(loaded.spec.folder, output_folder) if elsewhere else None,
    )
    write_tuned(output, values)
    return dataclasses.replace(result, tuned_path=str(output))
