"""What `oomtune doctor` does: collect the facts a probe depends on, and say what would stop one here."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from oomtune import __version__
from oomtune.commands.prepare import device_flags
from oomtune.devices import resolve
from oomtune.devices.catalogue import find_card
from oomtune.devices.gpus import Machine, NvmlCard, ask_tensorflow, nvml_cards
from oomtune.devices.host import cpu_name, host_memory
from oomtune.domain import DeviceRequest
from oomtune.errors import EnvironmentProblem, UsageProblem
from oomtune.spec import load_spec
from oomtune.spec.files import is_there
from oomtune.storage.ledger import ledger_folder
from oomtune.trials.worker_host import WorkerHost
from oomtune.units import format_bytes

# Variables that change how much memory TensorFlow takes, and how.
_MEMORY_VARIABLES = (
    "CUDA_VISIBLE_DEVICES", "TF_FORCE_GPU_ALLOW_GROWTH", "TF_GPU_ALLOCATOR", "TF_DEVICE_MIN_SYS_MEMORY_IN_MB",
    "TF_CPU_ALLOCATOR_USE_BFC", "TF_CPU_BFC_MEM_LIMIT_IN_MB", "TF_ENABLE_ONEDNN_OPTS", "ONEDNN_MAX_CPU_ISA",
    "XLA_FLAGS", "TF_XLA_FLAGS", "KERAS_BACKEND",
)  # fmt: skip

# The smallest spec that loads; only its device section matters here.
_TENSOR = {"shape": [1]}
_SMALLEST_SPEC = {
    "model": {"layers": [{"Input": _TENSOR}]},
    "dataset": {"synthetic": {"inputs": _TENSOR, "targets": _TENSOR}},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    facts: tuple[tuple[str, str], ...]
    """Names and values; a fact without a name continues the one before it."""
    summary: str
    can_probe: bool

    @property
    def exit_code(self) -> int:
        return 0 if self.can_probe else EnvironmentProblem.exit_code


def device_request(
    device: str | None, memory_limit: str | None, like: str | None, settings: Sequence[str] = ()
) -> DeviceRequest:
    """Return the device that a probe with these flags would request; raise what a probe would raise."""
    for setting in settings:
        if not setting.startswith("device."):
            raise UsageProblem(
                f"--set {setting}: doctor reads no spec, so only device entries apply",
                hint="for example: --set device.headroom=0.1",
            )
    flags = device_flags(device, memory_limit, like)
    request = load_spec(_SMALLEST_SPEC, settings=settings, flags=flags).spec.device
    if request.like is not None:
        find_card(request.like)  # an unknown card is bad usage on every machine
    return request


def examine_machine(request: DeviceRequest, *, verbose: bool = False) -> Checkup:
    """Check everything a probe needs; `verbose` adds facts that rarely matter."""
    machine, problem = _tensorflow()
    cards = nvml_cards()
    memory = host_memory()
    facts = [
        ("oomtune", f"{__version__} on Python {platform.python_version()}"),
        *([("Python", sys.executable), ("system", platform.platform())] if verbose else []),
        ("TensorFlow", _tensorflow_words(machine) if machine else problem),
        *_gpu_facts(machine, cards),
        ("CPU", f"{cpu_name()}, {os.cpu_count()} cores"),
        (
            "memory",
            f"{format_bytes(memory.free_bytes)} free of {format_bytes(memory.total_bytes)}, bound by {memory.bound_by}",
        ),
        ("variables", _variables(verbose=verbose)),
    ]
    obstacles = [problem] if machine is None else []
    for name, folder in (("here", Path.cwd()), ("ledgers", ledger_folder(Path.cwd() / "spec.yaml"))):
        error = _write_error(folder)
        facts.append((name, f"{folder}: " + (f"can't be written ({error})" if error else "can be written")))
        obstacles += [f"{folder} can't be written"] if error else []
    summary = ""
    if machine is not None:
        try:
            summary = _probe_sentence(request, machine, cards)
        except EnvironmentProblem as refusal:
            obstacles.append(str(refusal))
    if obstacles:
        summary = f"A probe can't run here: {'; '.join(obstacles)}."
    return Checkup(facts=tuple(facts), summary=summary, can_probe=not obstacles)


def _tensorflow() -> tuple[Machine | None, str]:
    """Return TensorFlow's view of the machine, or None and why there is none."""
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
    gpus = f"finds {len(machine.gpus)} GPU" + ("" if len(machine.gpus) == 1 else "s")
    return f"{machine.tensorflow}, Keras {machine.keras}, {cuda}, {gpus}"


def _gpu_facts(machine: Machine | None, cards: list[NvmlCard]) -> list[tuple[str, str]]:
    facts = []
    for index, card in enumerate(cards):
        memory = f"{format_bytes(card.free_bytes)} free of {format_bytes(card.total_bytes)}"
        facts.append((f"GPU {index}", f"{card.name}, {memory}, driver {card.driver}"))
        for tenant in card.tenants:
            used = format_bytes(tenant.used_bytes) if tenant.used_bytes else "an unknown amount"
            facts.append(("", f"process {tenant.pid} ({tenant.name}) uses {used}"))
    if cards and machine and not machine.gpus:
        facts.append(
            ("", "the driver lists this card but TensorFlow does not find it: pip install 'tensorflow[and-cuda]'")
        )
    return facts or [("GPU", "none found")]


def _variables(*, verbose: bool) -> str:
    variables = [f"{name}={os.environ[name]}" for name in _MEMORY_VARIABLES if name in os.environ]
    if verbose:
        variables += [f"{name} is not set" for name in _MEMORY_VARIABLES if name not in os.environ]
    return ", ".join(variables) or "none that change memory"


def _write_error(folder: Path) -> str:
    """Return why nothing can be written in a folder, which may not exist yet; empty if it can."""
    existing = next(path for path in (folder, *folder.parents) if is_there(path))
    try:
        with tempfile.NamedTemporaryFile(dir=existing, prefix=".oomtune-"):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def _probe_sentence(request: DeviceRequest, machine: Machine, cards: list[NvmlCard]) -> str:
    """Say what a probe would use. Raises `EnvironmentProblem` if the requested device or budget is not available."""
    resolved = resolve(request, machine.gpus, cards)
    device, limit = resolved.device, format_bytes(resolved.budget.limit_bytes)
    is_default = device.kind == "cpu" and request == DeviceRequest(kind=request.kind)
    name = (
        f"the {device.kind.upper()}"
        if device.stands_in_for is None
        else f"the CPU in place of a {device.stands_in_for}"
    )
    return (
        f"A probe here would use {name} with a hard limit of {limit}{' (80 % of what is free)' if is_default else ''}; "
        "--memory-limit or --like sets another."
    )
