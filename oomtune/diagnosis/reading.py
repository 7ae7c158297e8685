"""From lines to a diagnosis: signs are gathered until the run shows that it went on, and the last failure counts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from oomtune.diagnosis.episode import Episode, Seen
from oomtune.diagnosis.facts import Told, with_facts
from oomtune.diagnosis.lines import Line, telling_lines
from oomtune.diagnosis.result import Diagnosis
from oomtune.diagnosis.signs import Sign, Weight, sign_of
from oomtune.diagnosis.survival import what_follows

_JOINED = re.compile(r"during handling of the above exception|direct cause of the following exception", re.I)
_IGNORED = re.compile(r"exception ignored in|error in (?:atexit|sys\.excepthook)", re.I)


def classify(text: str) -> Diagnosis:
    """The diagnosis of a text: what an exception said, a few lines, or a whole log."""
    return diagnose([text.encode("utf-8", "replace")])


def diagnose(blocks: Iterable[bytes]) -> Diagnosis:
    """The diagnosis of a log given in blocks of any size; little of it is held at a time."""
    reader = _Reader()
    for line in telling_lines(blocks):
        reader.read(line)
    return reader.diagnosis()


@dataclass(slots=True)
class _Tracebacks:
    """Which traceback a line stands below, and whether Python itself says that it does not matter."""

    number: int = 0
    below: bool = False
    joined: bool = False
    ignored: bool = False

    def hides(self, line: Line) -> bool:
        """Take note of the line. Is it part of an exception that Python ignored, at its own end?"""
        if _IGNORED.search(line.text):
            self.ignored = True
        elif _JOINED.search(line.text):
            self.joined = True
        elif "Traceback (most recent call last)" in line.text and not self.ignored:
            self.number += not self.joined
            self.joined, self.below = False, True
        hidden = self.ignored
        if line.raised:
            self.ignored = False
        return hidden


class _Reader:
    def __init__(self) -> None:
        self.episode = Episode()
        self.tracebacks = _Tracebacks()
        self.survived = False
        self.at = 0

    def read(self, line: Line) -> None:
        self.at += 1
        if line.skipped.strip():
            self._went_on(line.skipped)
        if not line.text or line.source or self.tracebacks.hides(line):
            return
        told = Told(line.number, line.text.strip())
        sign = sign_of(told.text, line.raised)
        if sign is None or sign.kind == "not_oom" or sign.weight is not Weight.OPTIONAL or sign.from_driver:
            self.episode.note(told)
        if sign is None:
            self._went_on(told.text.encode())
        else:
            self._see(sign, told, raised=bool(line.raised))

    def _see(self, sign: Sign, told: Told, *, raised: bool) -> None:
        episode = self.episode
        if sign.weight is Weight.RAISED and sign.kind != "not_oom":
            # Only what comes after a failure can be an answer to it; unless its own line says that it was caught.
            episode.tried_again = what_follows(told.text.encode()).tried_again
            episode.new_process = False
        uncaught = raised or self.tracebacks.below or sign.weight is Weight.KILLED
        at, traceback = self.at, self.tracebacks.number
        seen = episode.seen.setdefault(
            sign, Seen(sign=sign, line=told, uncaught=uncaught, first_at=at, last_at=at, traceback=traceback, times=0)
        )
        seen.times += 1
        seen.uncaught = seen.uncaught or uncaught
        seen.last_at, seen.traceback = at, traceback

    def _went_on(self, text: bytes) -> None:
        """Do these lines show that the run went on after what was seen? Then that did not end it."""
        episode = self.episode
        if not episode.seen:
            return
        follows = what_follows(text)
        episode.tried_again = episode.tried_again or follows.tried_again
        episode.new_process = episode.new_process or follows.new_process
        if follows.epoch:
            episode.epoch_at = self.at
        if follows.steps or follows.tried_again or follows.new_process:
            self.tracebacks.below = False
        self._close(episode.outlived(follows))

    def _close(self, signs: list[Sign]) -> None:
        for sign in signs:
            del self.episode.seen[sign]
            self.survived = self.survived or (sign.kind != "not_oom" and sign.weight is not Weight.OPTIONAL)
        if not self.episode.seen:
            self.episode = Episode()

    def diagnosis(self) -> Diagnosis:
        seen = self.episode.deciding()
        if seen is None:
            return Diagnosis(kind="not_oom", survived=self.survived)
        found = Diagnosis(
            kind=seen.sign.kind,
            failed=True,
            cause=seen.sign.cause,
            line=seen.line.text,
            line_number=seen.line.number,
            survived=self.survived,
            held_elsewhere=seen.is_memory and seen.sign.from_driver,
        )
        return with_facts(found, self.episode.told) if seen.is_memory else found
