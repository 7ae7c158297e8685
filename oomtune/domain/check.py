"""The result of a check: does a configuration still fit, and does it use more memory than before?"""

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
    """It ran out of memory on this machine, which has less memory than the card to check against."""


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
    """A difference between the machine or software of the answer and the present one."""

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
    """The file and line that set the batch size."""
    name: str
    candidate: Candidate
    """The candidate that was checked; after an update, the new answer."""
    device: Device
    budget: Budget
    tolerance: float
    card_limit_bytes: int | None = None
    """The limit of the card that the CPU stands in for. Set only if this machine has less memory."""
    was_tuned: bool = False
    """Whether the file is a tuned config rather than a plain spec."""
    confirmed: bool = True
    """Whether the search confirmed the answer. A search that stops early may leave it unconfirmed."""
    outcome: Outcome | None = None
    """How the trial of the configuration ended; None if nothing ran."""
    buckets_outcome: Outcome | None = None
    """How the trial of the buckets ended; None if there are no buckets, or the configuration already failed."""
    expected_peak_bytes: int | None = None
    """The peak when the answer was found; None if unknown, or measured on another device."""
    not_compared: str = ""
    """Why the peak is not compared with the evidence, if there is evidence."""
    changes: tuple[Change, ...] = ()
    spec_diff: tuple[str, ...] = ()
    """The diff from the spec of the original search to the present spec."""
    file_edited: bool = False
    """Whether somebody edited the spec inside the tuned config after the search."""
    spec_edited: bool = False
    """Whether somebody edited the source spec after the search."""
    uses_edited_spec: bool = False
    """Whether an update searched the edited source spec instead of the spec in the tuned config."""
    problem: TrialError | None = None
    notices: tuple[str, ...] = ()
    updated: ProbeResult | None = None
    """The result of the new search that an update ran."""
    candidate_before: Candidate | None = None
    """The answer in the file before the update."""

    @property
    def exit_code(self) -> int:
        return _EXIT_CODES[self.verdict]

    @property
    def allowed_bytes(self) -> int:
        """The largest peak that passes: the budget, or the earlier peak plus the tolerance, at most the limit.

        Peaks of one configuration differ from run to run. Headroom exists to absorb that noise.
        """
        with_tolerance_bytes = int((self.expected_peak_bytes or 0) * (1 + self.tolerance))
        return min(self.budget.limit_bytes, max(self.budget.budget_bytes, with_tolerance_bytes))

    @property
    def ignores_spec_edit(self) -> bool:
        """Whether the verdict ignores an edit of the source spec."""
        return self.spec_edited and not self.file_edited and not self.uses_edited_spec

    @property
    def card_budget_bytes(self) -> int:
        """The budget on the card that the CPU stands in for."""
        limit_bytes = self.card_limit_bytes or self.budget.limit_bytes
        return Budget(limit_bytes=limit_bytes, headroom=self.budget.headroom).budget_bytes

    @property
    def deciding(self) -> Outcome | None:
        """The outcome behind the verdict: the buckets' outcome if they failed, else the configuration's."""
        buckets = self.buckets_outcome
        return buckets if buckets is not None and buckets.kind is not Kind.FITS else self.outcome

    @property
    def growth(self) -> float | None:
        """The growth of the peak since the search, as a share; None if unknown."""
        peak = self.outcome.peak_bytes if self.outcome else None
        return peak / self.expected_peak_bytes - 1 if peak and self.expected_peak_bytes else None
