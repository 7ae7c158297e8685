"""This machine's CPU, and how much memory it can give. Container limits count."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

import psutil

# Not all that is free now stays free: other programs take some, and so does TensorFlow outside its allocator.
SHARE_OF_FREE = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """`free_bytes` can be taken without swapping or being killed; `bound_by` names what limits it."""

    free_bytes: int
    total_bytes: int
    bound_by: str


def host_memory(root: Path = Path("/")) -> HostMemory:
    """Return the smaller of what the machine has available and what each enclosing control group leaves."""
    machine = psutil.virtual_memory()
    best = HostMemory(free_bytes=machine.available, total_bytes=machine.total, bound_by="the machine")
    for limit, used in _control_groups(root):
        free = max(0, limit - used)
        if free < best.free_bytes:
            total = min(best.total_bytes, limit)
            best = HostMemory(free_bytes=free, total_bytes=total, bound_by="a control group (container) limit")
    return best


def _control_groups(root: Path) -> list[tuple[int, int]]:
    """Return the limit and the use of every memory control group, of version 2 or 1, that holds this process."""
    membership = root / "proc/self/cgroup"
    if not membership.is_file():
        return []
    groups = []
    for line in membership.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, names = root / "sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            base, names = root / "sys/fs/cgroup/memory", (
                "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file",
            )  # fmt: skip
        else:
            continue
        group = base / path.lstrip("/")
        # A container often sees its own group mounted at the root, where the listed path does not exist.
        for folder in (group, *group.parents):
            if base == folder or base in folder.parents:
                groups.append(_limit_of(folder, *names))
    return [group for group in groups if group is not None]


def _limit_of(folder: Path, limit_name: str, used_name: str, cache_name: str) -> tuple[int, int] | None:
    try:
        limit = (folder / limit_name).read_text().strip()
        used = int((folder / used_name).read_text())
        statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except OSError:
        return None
    # The kernel gives unused pages of files back when memory is short.
    return (int(limit), used - int(statistics.get(cache_name, 0))) if limit.isdigit() else None


def cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
