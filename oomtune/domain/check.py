"""What a check found: does a configuration still fit, and does it use more than it did?"""

from __future__ import annotations

from dataclasses import dataclass

from oomtune.domain.result import ProbeResult
from oomtune.domain.search import Budget, Candidate, Kind, Word
from oomtune.domain.spec import Device
from oomtune.domain.trial import Outcome, TrialError


class CheckVerdict(Word):
    FITS = "fits"
    UPDATED = "updated"
    USES_MORE = "uses_more"
    DOES_NOT_FIT = "does_not_fit"
    BROKEN = "broken"
    WRONG_DEVICE = "wrong_device"
    UNDECIDED = "undecided"
    """It ran out of memory in less than the card has that it was checked against."""


_EXIT_CODES = {
    CheckVerdict.FITS: 0,
    CheckVerdict.UPDATED: 0,
    CheckVerdict.USES_MORE: 4,
    CheckVerdict.DOES_NOT_FIT: 4,
    CheckVerdict.BROKEN: 6,
    CheckVerdict.WRONG_DEVICE: 5,
    CheckVerdict.UNDECIDED: 5,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Something that is not as it was when the answer was found."""

    what: str
    before: str
    now: str

    def __str__(self) -> str:
        return f"{self.what}: {self.before} then, {self.now} now"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    verdict: CheckVerdict
    path: str
    where: str
    """The line of the file that names the batch size."""
    name: str
    candidate: Candidate
    """What was checked; after an update what fits now."""
    device: Device
    budget: Budget
    tolerance: float
    card_limit_bytes: int | None = None
    """What the card has that the CPU stands in for, where this machine had less to give."""
    was_tuned: bool = False
    """Is it a tuned config, and not a plain spec?"""
    confirmed: bool = True
    """Was the answer confirmed when it was found? A search that was stopped may leave one that was not."""
    outcome: Outcome | None = None
    """How the run ended; None when nothing was run."""
    buckets_outcome: Outcome | None = None
    """How the buckets ended that took turns; None where there are none, or it did not come to that."""
    expected_peak_bytes: int | None = None
    """What it used when the answer was found; None where that is not known, or is of another device."""
    not_compared: str = ""
    """Why the peak is not held against the evidence, where there is evidence."""
    changes: tuple[Change, ...] = ()
    spec_diff: tuple[str, ...] = ()
    """The lines in which the spec that a tuned config was found for differs from the one that it holds, from what was
    there before to what is there now."""
    file_edited: bool = False
    """Is the spec in a tuned config another than the one that its answer was found for?"""
    spec_edited: bool = False
    """Has the spec that it was found for been edited since?"""
    took_over: bool = False
    """Was that edited spec searched, in place of the one in the file?"""
    problem: TrialError | None = None
    notices: tuple[str, ...] = ()
    updated: ProbeResult | None = None
    """What a new search from the known edge found, when one was asked for."""
    candidate_before: Candidate | None = None
    """What the file held before it was updated."""

    @property
    def exit_code(self) -> int:
        return _EXIT_CODES[self.verdict]

    @property
    def allowed_bytes(self) -> int:
        """What it may use at its peak: the budget, or what it was seen to use and the tolerance, up to the limit.
        The headroom is there for what differs between runs of one configuration, so that alone is no failure."""
        seen_bytes = int((self.expected_peak_bytes or 0) * (1 + self.tolerance))
        return min(self.budget.limit_bytes, max(self.budget.budget_bytes, seen_bytes))

    @property
    def is_of_an_earlier_spec(self) -> bool:
        """Is the verdict on a spec that people have edited since?"""
        return self.spec_edited and not self.file_edited and not self.took_over

    @property
    def card_budget_bytes(self) -> int:
        """What the card leaves to use that the CPU stands in for; the budget itself where the machine could give it."""
        limit_bytes = self.card_limit_bytes or self.budget.limit_bytes
        return Budget(limit_bytes=limit_bytes, headroom=self.budget.headroom).budget_bytes

    @property
    def deciding(self) -> Outcome | None:
        """The outcome that the verdict stands on: that of the buckets if these failed."""
        buckets = self.buckets_outcome
        return buckets if buckets is not None and buckets.kind is not Kind.FITS else self.outcome

    @property
    def growth(self) -> float | None:
        """By which share the peak is above what it was."""
        peak = self.outcome.peak_bytes if self.outcome else None
        return peak / self.expected_peak_bytes - 1 if peak and self.expected_peak_bytes else None
