"""What a person sees while a probe runs: a live view on a terminal, one line a trial elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.text import Text

from oomtune.domain import Budget, Device, Lane, ProbeSpec, Trial, TrialRecord
from oomtune.report.terminal import trial_line, trial_table
from oomtune.search import best_fit, time_ahead_s
from oomtune.search.lanes import lane_views
from oomtune.units import format_bytes, format_count, format_seconds

_ROWS = 14


def headline(spec: ProbeSpec, device: Device, budget: Budget) -> str:
    stand_in = f" as a {device.stands_in_for}" if device.stands_in_for else ""
    return (
        f"{spec.name}: {device.kind.upper()} {device.name}{stand_in}, limit {format_bytes(budget.limit_bytes)}, "
        f"budget {format_bytes(budget.budget_bytes)}"
    )


class LineScreen:
    """One line a trial, for logs and pipes; with `details`, also why it ended as it did."""

    def __init__(self, console: Console, *, details: bool = False) -> None:
        self.console = console
        self.details = details
        self.budget = Budget(limit_bytes=1)

    def probe_started(self, spec: ProbeSpec, device: Device, budget: Budget, earlier: int) -> None:
        self.budget = budget
        self._say(headline(spec, device, budget))
        if earlier:
            self._say(f"going on from {format_count(earlier, 'trial')} in the ledger")

    def data_read(self, samples: int, share: float) -> None:
        """What it was like is told when all is read."""

    def trial_started(self, trial: Trial, number: int) -> None:
        """Only endings get a line."""

    def trial_ended(self, record: TrialRecord, history: Sequence[TrialRecord]) -> None:
        self._say(trial_line(record, self.budget))
        outcome = record.outcome
        if self.details and outcome.step_ms is not None:
            self._say(
                f"  {outcome.steps_run} steps of {outcome.step_ms:.1f} ms, XLA {'on' if outcome.jit_compile else 'off'}"
            )
        if self.details and outcome.error is not None:
            self._say(f"  {outcome.error.message}")

    def notice(self, text: str) -> None:
        self._say(f"note: {text}")

    def _say(self, text: str) -> None:
        self.console.print(Text(text), soft_wrap=True)


class LiveScreen:
    """A view that is drawn anew while the probe runs; use it as a context."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.began = time.monotonic()
        self.history: Sequence[TrialRecord] = ()
        self.spec: ProbeSpec | None = None
        self.budget = Budget(limit_bytes=1)
        self.title = "reading the spec and starting TensorFlow"
        self.running: tuple[Trial, int, float] | None = None
        self.ends_at: float | None = None
        self.foreseen_after = 0
        self.spinner = Spinner("dots")
        self.share_read: float | None = None
        self.live = Live(console=console, get_renderable=self._render, refresh_per_second=8, transient=True)

    def __enter__(self) -> LiveScreen:
        self.live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.live.__exit__(None, None, None)

    def probe_started(self, spec: ProbeSpec, device: Device, budget: Budget, earlier: int) -> None:
        self.spec, self.budget = spec, budget
        self.title = headline(spec, device, budget)
        if earlier:
            self.notice(f"going on from {format_count(earlier, 'trial')} in the ledger")

    def data_read(self, samples: int, share: float) -> None:
        self.title = f"reading the data: {samples:,} samples"
        self.share_read = share

    def trial_started(self, trial: Trial, number: int) -> None:
        self.running = (trial, number, time.monotonic())

    def trial_ended(self, record: TrialRecord, history: Sequence[TrialRecord]) -> None:
        self.running = None
        self.history = list(history)

    def notice(self, text: str) -> None:
        self.live.console.print(Text(f"note: {text}", style="yellow"))

    def _render(self) -> RenderableType:
        parts: list[RenderableType] = [Text(self.title, style="bold")]
        if self.history:
            parts.append(trial_table(list(self.history[-_ROWS:]), self.budget))
        running = self.running  # the other thread may end the trial while this one draws it
        if running is not None:
            trial, number, began = running
            what = f"{number} {trial.purpose}: {trial.candidate} ({time.monotonic() - began:.0f} s)"
            self.spinner.update(text=escape(what))
            parts.append(self.spinner)
        elif self.spec is None:
            self.spinner.update(text="")
            parts.append(self.spinner if self.share_read is None else ProgressBar(completed=self.share_read * 100))
        parts.append(Text(self._status(running[0].candidate.lane if running else None), style="dim"))
        return Group(*parts)

    def _status(self, lane: Lane | None) -> str:
        words = [f"{format_seconds(time.monotonic() - self.began)} elapsed", *self._time_to_go()]
        best = best_fit(self.spec.space, self.history) if self.spec else None
        if best is not None:
            words.append(f"best so far: {best.candidate}{self._edge_words(lane)}")
        return " · ".join(words)

    def _time_to_go(self) -> list[str]:
        """What is foreseen after each trial; it runs down until the next one has ended."""
        if self.spec is not None and self.foreseen_after != len(self.history):
            # Worked out here, by the thread that draws, so that no trial waits for it.
            ahead_s = time_ahead_s(self.spec.space, self.budget, self.history)
            self.foreseen_after = len(self.history)
            self.ends_at = None if not ahead_s else time.monotonic() + ahead_s
        if self.ends_at is None:
            return []
        left_s = self.ends_at - time.monotonic()
        return [f"about {format_seconds(left_s)} to go" if left_s > 0 else "it takes longer than was foreseen"]

    def _edge_words(self, lane: Lane | None) -> str:
        """What is known of the edge in the lane being tried."""
        if self.spec is None or lane is None:
            return ""
        # A bucket's lane is none of the space's.
        view = lane_views(self.spec.space, self.history, self.budget, [lane])[lane]
        low = "?" if view.low is None else str(view.low)
        return f" · this lane's edge lies between {low} and {view.high or 'the maximum'}"
