"""This machine's CPU, and its free memory within container limits."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

import psutil

# Other programs, and TensorFlow outside its allocator, take the rest of the free memory.
SHARE_OF_FREE = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """`free_bytes` can be taken without swapping or being killed; `bound_by` names the limit."""

    free_bytes: int
    total_bytes: int
    bound_by: str


def host_memory(root: Path = Path("/")) -> HostMemory:
    """Return the memory that the machine and all enclosing control groups leave free."""
    machine = psutil.virtual_memory()
    memory = HostMemory(free_bytes=machine.available, total_bytes=machine.total, bound_by="the machine")
    for limit, used in _control_groups(root):
        free = max(0, limit - used)
        if free < memory.free_bytes:
            total = min(memory.total_bytes, limit)
            memory = HostMemory(free_bytes=free, total_bytes=total, bound_by="a control group (container) limit")
    return memory


def _control_groups(root: Path) -> list[tuple[int, int]]:
    """Return limit and usage of every memory control group, of version 1 or 2, around this process."""
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
    # The kernel reclaims inactive file pages when memory is short.
    return (int(limit), used - int(statistics.get(cache_name, 0))) if limit.isdigit() else None


def cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
