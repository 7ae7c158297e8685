"""What a person sees while an explanation is made: what is being measured, and one line a trial."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from oomtune.cli.screen import headline
from oomtune.domain import Budget, Device, Kind, Outcome, ProbeSpec, Trial, TrialRecord
from oomtune.report.trial_rows import ending_of
from oomtune.units import format_bytes, format_seconds


class ExplainLines:
    """One line a trial, for logs and pipes; with `details`, also why it ended as it did."""

    def __init__(self, console: Console, *, details: bool = False) -> None:
        self.console = console
        self.details = details

    def probe_started(self, spec: ProbeSpec, device: Device, budget: Budget, earlier: int) -> None:
        self.say(headline(spec, device, budget))

    def data_read(self, samples: int, share: float) -> None:
        """What it was like is told when all is read."""

    def trial_started(self, trial: Trial, number: int) -> None:
        """Told by what it measures."""

    def trial_ended(self, record: TrialRecord, history: Sequence[TrialRecord]) -> None:
        """Told by what it measured."""

    def measuring(self, what: str, trial: Trial, number: int) -> None:
        """Only endings get a line."""

    def measured(self, what: str, outcome: Outcome, number: int) -> None:
        self.say(f"trial {number}: {what}: {_shown(outcome)}, {format_seconds(outcome.duration_s)}")
        if self.details and outcome.error is not None:
            self.say(f"  {outcome.error.message}")

    def notice(self, text: str) -> None:
        self.say(f"note: {text}")

    def say(self, text: str) -> None:
        self.console.print(Text(text), soft_wrap=True)


class ExplainStatus(ExplainLines):
    """The same with a line at the end that tells what is being measured; use it as a context."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.status = console.status("reading the spec and starting TensorFlow")

    def __enter__(self) -> ExplainStatus:
        self.status.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.status.__exit__(None, None, None)

    def data_read(self, samples: int, share: float) -> None:
        self.status.update(f"reading the data: {samples:,} samples")

    def measuring(self, what: str, trial: Trial, number: int) -> None:
        self.status.update(escape(f"measuring {what} (trial {number} of about 30)"))


def _shown(outcome: Outcome) -> str:
    """How it ended, if that was no fit; else what it took, and how far it went on from there."""
    # A climb ends where it does not fit any more: its own sizes did.
    fits = outcome.kind is Kind.FITS or bool(outcome.points)
    peak = outcome.points[-1].peak_bytes if outcome.points else outcome.peak_bytes
    further = f"batch {outcome.further[-1].batch_size:,} fits too" if outcome.further else ""
    memory = "" if peak is None else format_bytes(peak)
    return ", ".join(filter(None, ("" if fits else ending_of(outcome).words, memory, further)))
