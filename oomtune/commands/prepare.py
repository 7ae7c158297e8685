"""Everything between a command's start and its first trial: the worker, the device, the data and the versions."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import importlib.util
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from oomtune import __version__, errors
from oomtune.commands.scan import apply_scan, scan_data
from oomtune.devices import Gpu, Resolved, ask_tensorflow, resolve
from oomtune.devices.gpus import NvmlCard, nvml_cards
from oomtune.domain import Budget, KerasFile, Layers, ProbeSpec, Script, TrialError, runs_users_code
from oomtune.domain.observer import Observer
from oomtune.spec import LoadedSpec, data_files, named_modules
from oomtune.spec.files import is_file, modules_in
from oomtune.storage.digests import digests
from oomtune.trials.local import ForkRunner
from oomtune.trials.worker_host import WorkerHost

_KEY = re.compile(r"\b(?:model|dataset|training|search)(?:\.[a-z_]+|\[\d+\])+")


@contextlib.contextmanager
def prepare(observer: Observer) -> Iterator[Preparation]:
    """Start a worker, which takes seconds to import TensorFlow, while the caller reads its spec; end it afterwards."""
    has_tensorflow = importlib.util.find_spec("tensorflow") is not None
    preparation = Preparation(observer, WorkerHost("fork", pinned_environment()) if has_tensorflow else None)
    try:
        yield preparation
    finally:
        preparation.close()


class Preparation:
    """A worker that is starting, and the steps that need it."""

    def __init__(self, observer: Observer, host: WorkerHost | None) -> None:
        self._observer = observer
        self._host = host
        self._prepared: Prepared | None = None

    def visible_gpus(self, kind: str) -> tuple[tuple[Gpu, ...], list[NvmlCard] | None]:
        """Return TensorFlow's GPUs and the driver's cards; neither is needed for the CPU."""
        host = self._require_host()
        gpus = () if kind == "cpu" else ask_tensorflow(host).gpus
        return gpus, nvml_cards() if gpus else None

    def resolve_device(self, loaded: LoadedSpec) -> Resolved:
        """Return the device that the spec asks for and its budget."""
        gpus, cards = self.visible_gpus(loaded.spec.device.kind)
        try:
            return resolve(loaded.spec.device, gpus, cards)
        except errors.UsageProblem as error:
            error.where = loaded.place("device.like")  # only an unknown card is a mistake in the spec
            raise

    def read_data(self, loaded: LoadedSpec, resolved: Resolved, *, deadline: float | None = None) -> Prepared:
        """Complete the spec with what its data shows. Raises `TimeUp` if the deadline comes first."""
        host, spec = self._require_host(), loaded.spec
        files = deciding_files(loaded)
        key = {"dataset": loaded.values.get("dataset"), "folder": spec.folder, "files": files, **versions()}
        scan = scan_data(loaded, key, host, self._observer, deadline=deadline)
        loaded = dataclasses.replace(loaded, spec=apply_scan(spec, scan, loaded.place))
        self._prepared = Prepared(loaded, resolved, files, host, self._observer)
        return self._prepared

    def close(self) -> None:
        if self._host is not None:
            self._host.close()
        if self._prepared is not None:
            self._prepared.close()

    def _require_host(self) -> WorkerHost:
        if self._host is None:
            raise errors.TensorFlowMissing("TensorFlow is not installed", hint="pip install tensorflow")
        return self._host


class Prepared:
    """A spec whose trials can run: with its data read, on a device, and with a worker that has TensorFlow."""

    def __init__(
        self, loaded: LoadedSpec, resolved: Resolved, files: dict[str, str], host: WorkerHost, observer: Observer
    ) -> None:
        self.loaded = loaded
        self.spec = loaded.spec
        self.device = resolved.device
        self.budget = resolved.budget
        self.notices = resolved.notices
        self.files = files
        """Digests of the files that decide what a trial does."""
        self.host = host
        self._observer = observer
        self._runner: ForkRunner | None = None

    @property
    def trial_environment(self) -> dict[str, str]:
        """Variables that the trials turned out to need on this machine; training needs them too."""
        return {} if self._runner is None else self._runner.environment

    @property
    def environment(self) -> dict[str, Any]:
        """The versions and variables that the trials ran with, as reports and tuned configs show them."""
        return {**versions(), "needs_environment": {**pinned_environment(), **self.trial_environment}}

    def runner(
        self,
        *,
        spec: ProbeSpec | None = None,
        budget: Budget | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> ForkRunner:
        """Return a runner for this spec and budget, or for others, on the worker as the last runner left it."""
        self._runner = ForkRunner(
            spec=spec or self.spec,
            device=self.device,
            budget=budget or self.budget,
            notice=self._observer.notice,
            host=self.host if self._runner is None else self._runner.host,
            environment=self.trial_environment if environment is None else environment,
        )
        return self._runner

    def close(self) -> None:
        if self._runner is not None:
            self._runner.close()  # a runner may have replaced the worker


def device_flags(device: str | None, memory_limit: str | int | None, like: str | None) -> dict[str, tuple[str, Any]]:
    """Return the spec entries that these flags set, each with the flag that set it."""
    if memory_limit is not None and like is not None:
        raise errors.UsageProblem("--memory-limit and --like both set the limit", hint="keep one of them")
    flags = {
        "device.kind": ("--device", device),
        "device.memory_limit": ("--memory-limit", memory_limit),
        "device.like": ("--like", like),
    }
    return {key: (flag, value) for key, (flag, value) in flags.items() if value is not None}


def pinned_environment() -> dict[str, str]:
    # oneDNN changes peaks a lot, and its default depends on the processor.
    return {"TF_ENABLE_ONEDNN_OPTS": os.environ.get("TF_ENABLE_ONEDNN_OPTS", "1")}


def versions() -> dict[str, Any]:
    installed = {"oomtune": __version__}
    for name in ("tensorflow", "keras"):
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            installed[name] = "unknown"
    return installed


def with_location(problem: TrialError, loaded: LoadedSpec) -> TrialError:
    """Add the file and line of the first spec entry that the problem mentions, if it mentions one."""
    key = _KEY.search(problem.message)
    return problem if key is None or problem.where else dataclasses.replace(problem, where=loaded.place(key[0]))


def deciding_files(loaded: LoadedSpec) -> dict[str, str]:
    """Return digests of the files that decide what a trial does: the model's, the data's and the user's code."""
    spec, folder = loaded.spec, Path(loaded.spec.folder)
    files = [] if spec.dataset is None else list(data_files(spec.dataset, folder))
    match spec.model:
        case KerasFile(path=path):
            files.append(folder / path)
        case Layers(layers=layers):
            files += [folder / file for layer in layers if isinstance(file := layer.config.get("vocabulary"), str)]
        case Script(path=path, args=arguments):
            # Most of what a script imports and reads lies beside it or is named in its arguments.
            files += modules_in((folder / path).parent)
            files += [folder / argument for argument in arguments]
    files += _user_modules(loaded)
    try:
        return digests(path for path in files if is_file(path))
    except OSError as error:
        raise errors.DataUnreadable(f"{error.filename} can't be read: {error.strerror}") from None


def _user_modules(loaded: LoadedSpec) -> list[Path]:
    """Return every module that user code could import; no module if the spec names no code.

    Named modules import others, so all modules on the way count, not only the named ones.
    """
    names = list(named_modules([loaded.values.get("model"), loaded.values.get("dataset")]))
    model = loaded.spec.model
    if not names and not (isinstance(model, KerasFile) and model.allow_code):
        return []
    files = []
    for folder in {Path(loaded.spec.folder), Path.cwd()}:
        files += modules_in(folder)
        # A folder without an __init__.py can be imported like a package.
        for top in {folder / name.partition(".")[0] for name in names}:
            files += top.rglob("*.py") if top.is_dir() else []
    return files


def unfenced_code_notices(spec: ProbeSpec, fences_writes: Callable[[], bool]) -> list[str]:
    """Warn if user code runs and the kernel can't keep it from writing into the user's folders."""
    if not runs_users_code(spec.model, spec.dataset) or fences_writes():
        return []
    return [
        "this kernel has no Landlock: writes of your code through Python, TensorFlow or Keras are redirected, but "
        "other code, such as a program that it starts, can write into your folders"
    ]
