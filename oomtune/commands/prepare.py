"""What comes before the first trial, whatever trials are for: the worker, the device, the data, the versions."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import importlib.util
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from oomtune import __version__, errors
from oomtune.commands.scan import scan_data, with_data
from oomtune.devices import Resolved, ask_tensorflow, resolve
from oomtune.devices.gpus import nvml_cards
from oomtune.domain import KerasFile, Layers, ProbeSpec, Script, TrialError, runs_users_code
from oomtune.domain.observer import Observer
from oomtune.spec import LoadedSpec, data_files, named_modules
from oomtune.spec.files import is_file, modules_in
from oomtune.storage.digests import digests
from oomtune.storage.ledger import ledger_folder
from oomtune.trials.worker_host import WorkerHost

_KEY = re.compile(r"\b(?:model|dataset|training|search)(?:\.[a-z_]+|\[\d+\])+")


def device_flags(device: str | None, memory_limit: str | int | None, like: str | None) -> dict[str, tuple[str, Any]]:
    """The spec's entries that these flags set, each with the flag that did."""
    if memory_limit is not None and like is not None:
        raise errors.UsageProblem("--memory-limit and --like both set the limit", hint="keep one of them")
    given = {
        "device.kind": ("--device", device),
        "device.memory_limit": ("--memory-limit", memory_limit),
        "device.like": ("--like", like),
    }
    return {key: (flag, value) for key, (flag, value) in given.items() if value is not None}


@contextlib.contextmanager
def started_worker() -> Iterator[WorkerHost | None]:
    """A worker that imports TensorFlow, which takes seconds, while the spec is read; None where there is none."""
    have_tensorflow = importlib.util.find_spec("tensorflow") is not None
    host = WorkerHost("fork", pinned_environment()) if have_tensorflow else None
    try:
        yield host
    finally:
        if host is not None:
            host.close()


def needed(host: WorkerHost | None) -> WorkerHost:
    if host is None:
        raise errors.TensorFlowMissing("TensorFlow is not installed", hint="pip install tensorflow")
    return host


def pinned_environment() -> dict[str, str]:
    # oneDNN changes peaks a lot, and whether it is on by default depends on the processor.
    return {"TF_ENABLE_ONEDNN_OPTS": os.environ.get("TF_ENABLE_ONEDNN_OPTS", "1")}


def resolved_device(loaded: LoadedSpec, host: WorkerHost) -> Resolved:
    """The device that the spec asks for, as it is here, and its budget."""
    request = loaded.spec.device
    gpus = () if request.kind == "cpu" else ask_tensorflow(host).gpus
    try:
        return resolve(request, gpus, nvml_cards() if gpus else None)
    except errors.UsageProblem as error:
        error.where = loaded.place("device.like")  # no such card; nothing else of it is a matter of words
        raise


def with_its_data(
    loaded: LoadedSpec,
    files: dict[str, str],
    host: WorkerHost,
    observer: Observer,
    *,
    deadline: float | None = None,
) -> LoadedSpec:
    """The spec with what its data showed. Raises `TimeUp` when the deadline comes before it was read."""
    spec = loaded.spec
    key = {"dataset": loaded.values.get("dataset"), "folder": spec.folder, "files": files, **versions()}
    scan = scan_data(spec, key, ledger_folder(loaded.path), host, observer, deadline=deadline)
    return dataclasses.replace(loaded, spec=with_data(spec, scan, loaded.place))


def located(problem: TrialError, loaded: LoadedSpec) -> TrialError:
    """The problem with the place of the entry of the spec that it names first, if it names one."""
    named = _KEY.search(problem.message)
    return problem if named is None or problem.where else dataclasses.replace(problem, where=loaded.place(named[0]))


def versions() -> dict[str, Any]:
    found = {"oomtune": __version__}
    for name in ("tensorflow", "keras"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "unknown"
    return found


def deciding_files(loaded: LoadedSpec) -> dict[str, str]:
    """Digests of the files beside the spec that decide what a trial does: the model's, the data, the user's code."""
    spec, folder = loaded.spec, Path(loaded.spec.folder)
    files = [] if spec.dataset is None else list(data_files(spec.dataset, folder))
    match spec.model:
        case KerasFile(path=path):
            files.append(folder / path)
        case Layers(layers=layers):
            files += [folder / file for layer in layers if isinstance(file := layer.config.get("vocabulary"), str)]
        case Script(path=path, args=arguments):
            # What it imports and reads most often lies beside it, or is named in its arguments.
            files += modules_in((folder / path).parent)
            files += [folder / argument for argument in arguments]
    files += _users_modules(loaded)
    try:
        return digests(path for path in files if is_file(path))
    except OSError as error:
        raise errors.DataUnreadable(f"{error.filename} can't be read: {error.strerror}") from None


def _users_modules(loaded: LoadedSpec) -> list[Path]:
    """The user's code that may run in a trial: all that lies where it is looked for, as what is named imports more.
    Nothing when nothing is named."""
    names = list(named_modules([loaded.values.get("model"), loaded.values.get("dataset")]))
    if not names and not getattr(loaded.spec.model, "allow_code", False):
        return []
    files = []
    for folder in {Path(loaded.spec.folder), Path.cwd()}:
        files += modules_in(folder)
        # A folder that is no package but is imported like one.
        for top in {folder / name.partition(".")[0] for name in names}:
            files += top.rglob("*.py") if top.is_dir() else []
    return files


def warn_of_unfenced_code(spec: ProbeSpec, fences_writes: Callable[[], bool]) -> list[str]:
    """Warn when the user's code runs and nothing keeps it from writing into their folders."""
    if not runs_users_code(spec.model, spec.dataset) or fences_writes():
        return []
    return [
        "this kernel has no Landlock: what your code writes by Python's, TensorFlow's or Keras' own means is "
        "redirected, but nothing keeps other code, such as a program that it starts, from writing into your folders"
    ]
