"""The signs of one stretch of a log: which of them the run outlived, and which one ended it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from oomtune.diagnosis.facts import Told
from oomtune.diagnosis.result import Cause
from oomtune.diagnosis.signs import Sign, Weight
from oomtune.diagnosis.survival import Follows

_NEAR = 5  # lines that tell something
_CALLED_OFF = {Cause.TIME, Cause.STOPPED, Cause.DISK}


@dataclass(slots=True, kw_only=True)
class Seen:
    """A sign as it was first met, how often its like was, and where last."""

    sign: Sign
    line: Told
    uncaught: bool
    """Did it end its process, as far as can be seen: below a traceback, or by a signal?"""
    first_at: int
    last_at: int
    traceback: int
    """Which traceback of the log it last stood below, those that lead to one another counted once."""
    times: int = 1

    @property
    def is_memory(self) -> bool:
        return self.sign.kind != "not_oom"

    @property
    def ends_a_run(self) -> bool:
        raised_memory = self.is_memory and self.sign.weight is Weight.RAISED and not self.sign.logged
        return self.uncaught or raised_memory


@dataclass(slots=True)
class Episode:
    """What was seen since the run last showed that it goes on."""

    seen: dict[Sign, Seen] = field(default_factory=dict)
    first: list[Told] = field(default_factory=list)
    last: deque[Told] = field(default_factory=lambda: deque(maxlen=200))
    tried_again: bool = False
    new_process: bool = False
    epoch_at: int = 0
    """When all steps of an epoch were last seen to have run."""

    def note(self, line: Told) -> None:
        (self.first if len(self.first) < 200 else self.last).append(line)

    @property
    def told(self) -> list[Told]:
        return [*self.first, *self.last]

    def outlived(self, follows: Follows) -> list[Sign]:
        """The signs that did not end the run, as what follows shows."""
        ended = any(seen.ends_a_run for seen in self.seen.values())
        return [seen.sign for seen in self.seen.values() if self._outlived(seen, follows, ended)]

    def _outlived(self, seen: Seen, follows: Follows, ended: bool) -> bool:
        """Steps below a failure may be old output that was kept in a buffer, and `done` may be an epilogue. So what was
        raised is outlived only where someone says that they try again, and then goes on; what ended a process where
        another began, or steps came to their end.
        """
        sign = seen.sign
        if sign.from_driver and follows.device_made and not seen.ends_a_run:
            return True
        if not seen.is_memory and sign.detail == 0 and not seen.uncaught and follows.succeeded:
            return True
        ran_to_an_end = follows.epoch or follows.succeeded
        if sign.logged or sign.weight is Weight.OPTIONAL:
            op_failed = seen.is_memory and sign.weight is Weight.RAISED
            went_on = (ran_to_an_end or (self.tried_again and follows.steps)) if op_failed else follows.steps
            return (went_on or follows.done) and not ended
        if seen.uncaught:
            return (self.new_process and follows.steps) or (self.tried_again and ran_to_an_end)
        return (self.tried_again or self.new_process) and (follows.steps or follows.succeeded)

    def deciding(self) -> Seen | None:
        """The failure that counts: memory that was raised, then what else was raised, then what was only logged."""
        raised = self._raised_memory()
        if raised is not None:
            return self._mistake_after(raised) or raised
        others = [seen for seen in self.seen.values() if not seen.is_memory]
        plain = [seen for seen in others if not seen.sign.ambiguous and seen.sign.weight is Weight.RAISED]
        killed = self._best("host_oom", Weight.KILLED)
        if killed is not None:
            return _most_telling([seen for seen in plain if _explains(seen, killed)]) or killed
        logged = self._logged_memory()
        if plain and not (logged and all(_yields(seen, logged) for seen in plain)):
            return _most_telling(plain)
        return logged or self._refused(others) or _most_telling(others)

    def _best(self, kind: str, weight: Weight) -> Seen | None:
        found = [seen for seen in self.seen.values() if seen.sign.kind == kind and seen.sign.weight is weight]
        return max(found, key=lambda seen: seen.sign.detail, default=None)

    def _logged_memory(self) -> Seen | None:
        """The device's before the host's, and errors before warnings."""
        found = [seen for seen in self.seen.values() if seen.is_memory and seen.sign.weight is Weight.LOGGED]

        def tells(seen: Seen) -> tuple[bool, bool, int]:
            return seen.sign.kind == "device_oom", not seen.sign.warned, seen.sign.detail

        return max(found, key=tells, default=None)

    def _raised_memory(self) -> Seen | None:
        found = [self._best(kind, Weight.RAISED) for kind in ("device_oom", "host_oom")]
        raised = [seen for seen in found if seen and not self._names_a_limit_before(seen)]
        return max(raised, key=lambda seen: seen.sign.detail, default=None)

    def _names_a_limit_before(self, memory: Seen) -> bool:
        """Some lines above, is a limit named that the system has the same words for?"""
        limits = [seen for seen in self.seen.values() if seen.sign.cause is Cause.LIMIT]
        return memory.sign.errno_only and any(0 < memory.first_at - seen.first_at <= _NEAR for seen in limits)

    def _mistake_after(self, memory: Seen) -> Seen | None:
        """A later traceback of its own: one that says a mistake, or any after an epoch that ran to its end."""
        last = max(
            (seen for seen in self.seen.values() if seen.is_memory and seen.sign.weight is Weight.RAISED),
            key=lambda seen: seen.last_at,
            default=memory,
        )
        later = [
            seen
            for seen in self.seen.values()
            if not seen.is_memory
            and seen.uncaught
            and not seen.sign.ambiguous
            and seen.traceback > last.traceback
            and (seen.sign.mistake or last.last_at < self.epoch_at < seen.last_at)
        ]
        return max(later, key=lambda seen: seen.last_at, default=None)

    def _refused(self, others: list[Seen]) -> Seen | None:
        """Memory that someone could do without: proof only beside a failure that gives no reason, or when repeated."""
        refused = self._best("device_oom", Weight.OPTIONAL)
        if refused is None:
            return None
        optional = [seen for seen in self.seen.values() if seen.sign.weight is Weight.OPTIONAL]
        again = sum(seen.times for seen in optional if seen.sign.from_driver) > 1
        unexplained = any(seen.sign.ambiguous and not seen.sign.logged for seen in others)
        explained = any(not seen.sign.ambiguous and seen.sign.detail for seen in others)
        return refused if (again or unexplained) and not explained else None


def _yields(seen: Seen, logged: Seen) -> bool:
    """Does this failure leave the reason to memory that the runtime logged? A warning does not reason for an error."""
    sign = seen.sign
    return sign.detail == 0 or (sign.silent and not logged.sign.warned and logged.first_at < seen.last_at)


def _explains(seen: Seen, killed: Seen) -> bool:
    """Was it ended for this, and not by the kernel? A stop has to come before the signal, as does a mistake."""
    sign = seen.sign
    if sign.cause in _CALLED_OFF and (sign.cause is not Cause.STOPPED or sign.denies_memory):
        return True
    return (sign.cause is Cause.STOPPED or (sign.mistake and seen.uncaught)) and seen.first_at < killed.first_at


def _most_telling(found: list[Seen]) -> Seen | None:
    """What gives a reason comes before what gives none, and the last of equals after those that it followed from."""

    def tells(seen: Seen) -> tuple[bool, int, int]:
        return (bool(seen.sign.detail) and not seen.sign.ambiguous, seen.sign.weight, seen.sign.detail)

    return max(found, key=tells, default=None)
