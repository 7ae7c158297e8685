"""Which findings explain a leak."""

from __future__ import annotations

import pytest

from oomtune.domain import Finding
from oomtune.trials.leaks import explained

KEPT = Finding(kind="kept_tensors", message="a list grows", where="a.py:7", hint="clear it", bytes_per_step=1000)
TRACED = Finding(kind="retrace", message="f() was traced 9 times in 9 steps", where="a.py:8", hint="pass tensors")


@pytest.mark.parametrize(
    ("findings", "leak_bytes_per_step", "reported"),
    [
        ((), 0, []),
        ((KEPT,), 0, [("kept_tensors", 1000)]),
        ((KEPT,), 1100, [("kept_tensors", 1000)]),
        ((KEPT,), 9000, [("kept_tensors", 1000), ("leak", 9000)]),
        ((TRACED,), 9000, [("retrace", 9000)]),
        ((), 9000, [("leak", 9000)]),
    ],
)
def test_a_leak_that_nothing_explains_is_reported_as_a_finding(
    findings: tuple[Finding, ...], leak_bytes_per_step: int, reported: list[tuple[str, int]]
) -> None:
    all_findings = explained(findings, leak_bytes_per_step)
    assert [(finding.kind, finding.bytes_per_step) for finding in all_findings] == reported
