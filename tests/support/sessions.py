"""Sessions on a fake device, for tests that look at what a session returns or tells."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from oomtune.domain import Budget, ProbeResult, ProbeSpec, TrialRecord
from oomtune.domain.observer import SilentObserver
from oomtune.session import Limits, run_session
from oomtune.trials.fake import FakeDevice
from oomtune.trials.runner import Runner
from tests.support.specs import CPU, small_probe_spec

EXACT_SPEC = small_probe_spec(search__batch_size={"min": 1, "max": 1024}, search__resolution=0.0)
NO_LIMITS = Limits()


def linear_device(limit_bytes: int = 1_000, headroom: float = 0.0) -> FakeDevice:
    """Return a device where a batch of `n` needs `100 + 5 * n` bytes: with 1,000 bytes, 180 is the largest."""
    law = lambda candidate: 100 + 5 * candidate.batch_size  # noqa: E731
    return FakeDevice(limit_bytes=limit_bytes, headroom=headroom, law=law)


class Notices(SilentObserver):
    """Keeps every notice."""

    def __init__(self) -> None:
        self.notices: list[str] = []

    def notice(self, text: str) -> None:
        self.notices.append(text)


def probe(
    runner: Runner,
    budget: Budget,
    spec: ProbeSpec = EXACT_SPEC,
    *,
    earlier: Sequence[TrialRecord] = (),
    limits: Limits = NO_LIMITS,
    clock: Callable[[], float] = lambda: 0.0,
    ledger: list[TrialRecord] | None = None,
    observer: SilentObserver | None = None,
) -> ProbeResult:
    return run_session(
        spec,
        CPU,
        budget,
        runner=runner,
        ledger=[] if ledger is None else ledger,
        earlier=earlier,
        observer=observer or SilentObserver(),
        limits=limits,
        clock=clock,
    )
