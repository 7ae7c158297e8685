"""What a person sees on stderr while trials run: a live view on a terminal, one line for each trial elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.text import Text

from oomtune.cli.streams import stderr_console
from oomtune.domain import Budget, Device, Kind, Lane, Outcome, ProbeSpec, Trial, TrialRecord
from oomtune.domain.observer import Observer, SilentObserver
from oomtune.report.terminal import trial_line, trial_table
from oomtune.report.trial_rows import ending_of
from oomtune.search import best_fit, time_ahead_s
from oomtune.search.lanes import lane_views
from oomtune.units import format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from oomtune.commands.explain import ExplainObserver

_ROWS = 14
_STARTING = "reading the spec and starting TensorFlow"


@contextlib.contextmanager
def probe_screen(*, quiet: bool, verbose: bool, no_color: bool) -> Iterator[Observer]:
    """Yield the observer that shows a probe or a check."""
    console = stderr_console(no_color=no_color)
    if quiet:
        yield SilentObserver()
    elif console.is_terminal and not verbose:
        with LiveScreen(console) as screen:
            yield screen
    else:
        yield LineScreen(console, verbose=verbose)


@contextlib.contextmanager
def explain_screen(*, quiet: bool, verbose: bool, no_color: bool) -> Iterator[ExplainObserver]:
    """Yield the observer that shows an explanation being measured."""
    console = stderr_console(no_color=no_color)
    if quiet:
        from oomtune.commands.explain import SilentExplainObserver

        yield SilentExplainObserver()
    elif console.is_terminal and not verbose:
        with ExplainStatus(console) as screen:
            yield screen
    else:
        yield ExplainLines(console, verbose=verbose)


def headline(spec: ProbeSpec, device: Device, budget: Budget) -> str:
    stand_in = f" as a {device.stands_in_for}" if device.stands_in_for else ""
    return (
        f"{spec.name}: {device.kind.upper()} {device.name}{stand_in}, limit {format_bytes(budget.limit_bytes)}, "
        f"budget {format_bytes(budget.budget_bytes)}"
    )


class _Lines:
    """Prints lines that logs and pipes can keep. With `verbose`, also why a trial failed."""

    def __init__(self, console: Console, *, verbose: bool = False) -> None:
        self.console = console
        self.verbose = verbose
        self.budget = Budget(limit_bytes=1)

    def probe_started(self, spec: ProbeSpec, device: Device, budget: Budget, earlier: int) -> None:
        self.budget = budget
        self.print(headline(spec, device, budget))
        if earlier:
            self.print(_resuming(earlier))

    def data_read(self, samples: int, share: float) -> None:
        """Print nothing: a notice sums up the data when all of it was read."""

    def trial_started(self, trial: Trial, number: int) -> None:
        """Print nothing until the trial ends."""

    def trial_ended(self, record: TrialRecord, history: Sequence[TrialRecord]) -> None:
        """Print nothing, unless a subclass does."""

    def notice(self, text: str) -> None:
        self.print(f"note: {text}")

    def print(self, text: str) -> None:
        self.console.print(Text(text), soft_wrap=True)


class LineScreen(_Lines):
    """One line for each trial of a probe."""

    def trial_ended(self, record: TrialRecord, history: Sequence[TrialRecord]) -> None:
        self.print(trial_line(record, self.budget))
        outcome = record.outcome
        if self.verbose and outcome.step_ms is not None:
            xla = "on" if outcome.jit_compile else "off"
            self.print(f"  {outcome.steps_run} steps of {outcome.step_ms:.1f} ms, XLA {xla}")
        if self.verbose and outcome.error is not None:
            self.print(f"  {outcome.error.message}")


class LiveScreen:
    """A view of a probe that is redrawn while it runs. Use it as a context."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.started_at = time.monotonic()
        self.history: Sequence[TrialRecord] = ()
        self.spec: ProbeSpec | None = None
        self.budget = Budget(limit_bytes=1)
        self.title = _STARTING
        self.running: tuple[Trial, int, float] | None = None
        self.ends_at: float | None = None
        self.estimated_after = 0
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
            self.notice(_resuming(earlier))

    def data_read(self, samples: int, share: float) -> None:
        self.title = _reading(samples)
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
            trial, number, started_at = running
            text = f"{number} {trial.purpose}: {trial.candidate} ({time.monotonic() - started_at:.0f} s)"
            self.spinner.update(text=escape(text))
            parts.append(self.spinner)
        elif self.spec is None:
            self.spinner.update(text="")
            parts.append(self.spinner if self.share_read is None else ProgressBar(completed=self.share_read * 100))
        parts.append(Text(self._status(running[0].candidate.lane if running else None), style="dim"))
        return Group(*parts)

    def _status(self, lane: Lane | None) -> str:
        parts = [f"{format_seconds(time.monotonic() - self.started_at)} elapsed", *self._remaining_time()]
        best = best_fit(self.spec.space, self.history) if self.spec else None
        if best is not None:
            parts.append(f"best so far: {best.candidate}{self._edge(lane)}")
        return " · ".join(parts)

    def _remaining_time(self) -> list[str]:
        """Return the estimate made after the last trial, counted down since."""
        if self.spec is not None and self.estimated_after != len(self.history):
            # The drawing thread works this out, so that no trial waits for it.
            ahead_s = time_ahead_s(self.spec.space, self.budget, self.history)
            self.estimated_after = len(self.history)
            self.ends_at = None if not ahead_s else time.monotonic() + ahead_s
        if self.ends_at is None:
            return []
        left_s = self.ends_at - time.monotonic()
        return [f"about {format_seconds(left_s)} left" if left_s > 0 else "taking longer than estimated"]

    def _edge(self, lane: Lane | None) -> str:
        """Return the bracket around the edge of the lane being tried."""
        if self.spec is None or lane is None:
            return ""
        # The lane of a bucket is not in the space, so it is named.
        view = lane_views(self.spec.space, self.history, self.budget, [lane])[lane]
        low = "?" if view.low is None else str(view.low)
        return f" · this lane's edge is between {low} and {view.high or 'the maximum'}"


class ExplainLines(_Lines):
    """One line for each measurement of an explanation."""

    def measuring(self, what: str, trial: Trial, number: int) -> None:
        """Print nothing until the trial ends."""

    def measured(self, what: str, outcome: Outcome, number: int) -> None:
        self.print(f"trial {number}: {what}: {_measurement(outcome)}, {format_seconds(outcome.duration_s)}")
        if self.verbose and outcome.error is not None:
            self.print(f"  {outcome.error.message}")


class ExplainStatus(ExplainLines):
    """`ExplainLines` with a last line that shows what is being measured. Use it as a context."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.status = console.status(_STARTING)

    def __enter__(self) -> ExplainStatus:
        self.status.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.status.__exit__(None, None, None)

    def data_read(self, samples: int, share: float) -> None:
        self.status.update(_reading(samples))

    def measuring(self, what: str, trial: Trial, number: int) -> None:
        self.status.update(escape(f"measuring {what} (trial {number} of about 30)"))


def _resuming(trials: int) -> str:
    return f"resuming after {format_count(trials, 'trial')} in the ledger"


def _reading(samples: int) -> str:
    return f"reading the data: {samples:,} samples"


def _measurement(outcome: Outcome) -> str:
    """Return the peak and the larger batches that fit too; first how the trial failed, if it did."""
    # A climb ends with a size that does not fit; the sizes before it did.
    fits = outcome.kind is Kind.FITS or bool(outcome.points)
    peak_bytes = outcome.points[-1].peak_bytes if outcome.points else outcome.peak_bytes
    larger = f"batch {outcome.further[-1].batch_size:,} fits too" if outcome.further else ""
    memory = "" if peak_bytes is None else format_bytes(peak_bytes)
    return ", ".join(filter(None, ("" if fits else ending_of(outcome).words, memory, larger)))
