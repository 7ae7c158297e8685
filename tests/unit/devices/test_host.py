"""Free memory of this machine, within the limits of its control groups."""

from __future__ import annotations

from pathlib import Path

from oomtune.devices.host import host_memory

GIB = 1024**3


def group(root: Path, membership: str, files: dict[str, str]) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(membership)
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_version_two_control_group_limits_free_memory(tmp_path: Path) -> None:
    root = group(
        tmp_path,
        "0::/pod/box\n",
        {
            "pod/memory.max": f"{GIB}\n",
            "pod/memory.current": f"{GIB // 2}\n",
            "pod/memory.stat": f"anon 5\ninactive_file {GIB // 4}\n",
            "pod/box/memory.max": "max\n",
            "pod/box/memory.current": "0\n",
            "pod/box/memory.stat": "inactive_file 0\n",
        },
    )
    memory = host_memory(root)
    assert (memory.free_bytes, memory.total_bytes) == (GIB * 3 // 4, GIB)
    assert "control group" in memory.bound_by


def test_a_version_one_control_group_limits_free_memory(tmp_path: Path) -> None:
    root = group(
        tmp_path,
        "5:memory:/docker/abc\n3:cpu,cpuacct:/x\n",
        {
            "memory/memory.limit_in_bytes": f"{GIB}\n",
            "memory/memory.usage_in_bytes": f"{GIB // 4}\n",
            "memory/memory.stat": "total_inactive_file 0\n",
        },
    )
    assert host_memory(root).free_bytes == GIB * 3 // 4


def test_without_a_group_limit_the_machine_sets_the_bound(tmp_path: Path) -> None:
    files = {"memory.max": "max\n", "memory.current": "1\n", "memory.stat": "inactive_file 0\n"}
    memory = host_memory(group(tmp_path, "0::/\n", files))
    assert memory.bound_by == "the machine"
