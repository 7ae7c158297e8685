"""The facts that `oomtune doctor` shows, gathered without trusting any of them to be there."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oomtune import __version__
from oomtune.commands.prepare import device_flags
from oomtune.devices import resolve
from oomtune.devices.catalogue import find_card
from oomtune.devices.host_memory import cpu_name, host_memory
from oomtune.devices.nvml import NvmlCard, nvml_cards
from oomtune.devices.tensorflow_view import Machine, ask_tensorflow
from oomtune.domain import DeviceRequest
from oomtune.errors import EnvironmentProblem, UsageProblem
from oomtune.report.document import json_document
from oomtune.spec import load_spec
from oomtune.spec.files import is_there
from oomtune.storage.ledger import ledger_folder
from oomtune.trials.worker_host import WorkerHost
from oomtune.units import format_bytes

# Variables that change which memory TensorFlow takes, and how.
_ALLOCATOR_VARIABLES = (
    "CUDA_VISIBLE_DEVICES", "TF_FORCE_GPU_ALLOW_GROWTH", "TF_GPU_ALLOCATOR", "TF_DEVICE_MIN_SYS_MEMORY_IN_MB",
    "TF_CPU_ALLOCATOR_USE_BFC", "TF_CPU_BFC_MEM_LIMIT_IN_MB", "TF_ENABLE_ONEDNN_OPTS", "ONEDNN_MAX_CPU_ISA",
    "XLA_FLAGS", "TF_XLA_FLAGS", "KERAS_BACKEND",
)  # fmt: skip

# Some spec, as the smallest that can be read: what is asked of it is its section device.
_ONE = {"shape": [1]}
_ANY_SPEC = {"model": {"layers": [{"Input": _ONE}]}, "dataset": {"synthetic": {"inputs": _ONE, "targets": _ONE}}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    rows: tuple[tuple[str, str], ...]
    sentence: str
    can_probe: bool

    @property
    def exit_code(self) -> int:
        return 0 if self.can_probe else EnvironmentProblem.exit_code

    def document(self) -> dict[str, Any]:
        facts = [{"name": name, "value": value} for name, value in self.rows]
        verdict = "ready" if self.can_probe else "not_ready"
        return json_document("doctor", self.exit_code, verdict, {"facts": facts, "summary": self.sentence})


def request_for(
    device: str | None, memory_limit: str | None, like: str | None, settings: Sequence[str] = ()
) -> DeviceRequest:
    """What a probe with these flags would ask for, in the words in which it would refuse them."""
    for setting in settings:
        if not setting.startswith("device."):
            raise UsageProblem(
                f"--set {setting}: the doctor has no spec, only its section device",
                hint="for example: --set device.headroom=0.1",
            )
    request = load_spec(_ANY_SPEC, settings=settings, flags=device_flags(device, memory_limit, like)).spec.device
    if request.like is not None:
        find_card(request.like)  # an unknown name is bad usage, whatever the machine is like
    return request


def checkup(request: DeviceRequest, *, every: bool = False) -> Checkup:
    """Look at everything a probe would need; `every` is also what says little when all is well."""
    machine, trouble = _tensorflow()
    cards = nvml_cards()
    memory = host_memory()
    rows = [
        ("oomtune", f"{__version__} on Python {platform.python_version()}"),
        *([("Python", sys.executable), ("system", platform.platform())] if every else []),
        ("TensorFlow", _tensorflow_words(machine) if machine else trouble),
        *_gpu_rows(machine, cards),
        ("CPU", f"{cpu_name()}, {os.cpu_count()} cores"),
        (
            "memory",
            f"{format_bytes(memory.free_bytes)} free of {format_bytes(memory.total_bytes)}, bound by {memory.bound_by}",
        ),
        ("variables", _variables(every=every)),
    ]
    stops = [trouble] if machine is None else []
    for name, folder in (("here", Path.cwd()), ("ledgers", ledger_folder(Path.cwd() / "spec.yaml"))):
        problem = _unwritable(folder)
        rows.append((name, f"{folder}: " + (f"can't be written ({problem})" if problem else "can be written")))
        stops += [f"{folder} can't be written"] if problem else []
    sentence, stop = _what_a_probe_would_do(request, machine, cards)
    stops += [stop] if stop else []
    if stops:
        sentence = f"A probe can't run here: {'; '.join(stops)}."
    return Checkup(rows=tuple(rows), sentence=sentence, can_probe=not stops)


def _tensorflow() -> tuple[Machine | None, str]:
    if importlib.util.find_spec("tensorflow") is None:
        return None, "not installed: pip install tensorflow"
    host = WorkerHost("fork")
    try:
        return ask_tensorflow(host), ""
    except EnvironmentProblem as error:
        return None, str(error)
    finally:
        host.close()


def _tensorflow_words(machine: Machine) -> str:
    cuda = f"built with CUDA {machine.cuda_version or ''}".strip() if machine.cuda_build else "built without CUDA"
    finds = f"finds {len(machine.gpus)} GPU" + ("" if len(machine.gpus) == 1 else "s")
    return f"{machine.tensorflow}, Keras {machine.keras}, {cuda}, {finds}"


def _gpu_rows(machine: Machine | None, cards: list[NvmlCard]) -> list[tuple[str, str]]:
    rows = []
    for index, card in enumerate(cards):
        rows.append(
            (
                f"GPU {index}",
                f"{card.name}, {format_bytes(card.free_bytes)} free of {format_bytes(card.total_bytes)}, "
                f"driver {card.driver}",
            )
        )
        for tenant in card.tenants:
            used = format_bytes(tenant.used_bytes) if tenant.used_bytes else "an unknown amount"
            rows.append(("", f"process {tenant.pid} ({tenant.name}) uses {used}"))
    if cards and machine and not machine.gpus:
        rows.append(
            ("", "the driver lists this card and TensorFlow does not find it: pip install 'tensorflow[and-cuda]'")
        )
    return rows or [("GPU", "none found")]


def _variables(*, every: bool) -> str:
    found = [f"{name}={os.environ[name]}" for name in _ALLOCATOR_VARIABLES if name in os.environ]
    if every:
        found += [f"{name} is not set" for name in _ALLOCATOR_VARIABLES if name not in os.environ]
    return ", ".join(found) or "none that change memory"


def _unwritable(folder: Path) -> str:
    """Why nothing can be written there; empty when it can."""
    existing = next(place for place in (folder, *folder.parents) if is_there(place))
    try:
        with tempfile.NamedTemporaryFile(dir=existing, prefix=".oomtune-"):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def _what_a_probe_would_do(request: DeviceRequest, machine: Machine | None, cards: list[NvmlCard]) -> tuple[str, str]:
    """A plain sentence, and what would stop it."""
    if machine is None:
        return "", ""
    try:
        found = resolve(request, machine.gpus, cards)
    except EnvironmentProblem as error:
        return "", str(error)
    device, limit = found.device, format_bytes(found.budget.limit_bytes)
    how = " (80 % of what is free)" if device.kind == "cpu" and request == DeviceRequest(kind=request.kind) else ""
    what = (
        f"the {device.kind.upper()}"
        if device.stands_in_for is None
        else f"the CPU in place of a {device.stands_in_for}"
    )
    return (
        f"A probe here would use {what} with a hard limit of {limit}{how}; --memory-limit or --like sets another.",
        "",
    )
