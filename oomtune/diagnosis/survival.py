"""Does what follows a failure show that the run went on?"""

from __future__ import annotations

import re
from typing import NamedTuple

# Steps that were run: a bar with a count, or a loss or score that is a number.
_STEPS = re.compile(
    rb"\d+/\d+ ?(?:\[|\xe2\x94\x81)|\d+%\|[^\n]*\d+/\d+|\b(?:loss|accuracy)\b[\w ]{0,20}[:=] ?-?\d|global_step/sec"
    rb"|\d(?:ms|s)/(?:step|batch)"
)
# All steps of an epoch: a bar at its end.
_EPOCH = re.compile(rb"\b(\d+)/\1 ?(?:\[|\xe2\x94\x81)|100%\|")
_AGAIN = re.compile(
    rb"retry|retries|try(?:ing)? again|fall(?:ing|s)? back|recover|caught|skipping|relaunch|restarting|\bfits\b"
    rb"|\bworks\b|(?::|->) ok\b"
    rb"|(?:reduc|lower|halv|decreas|shrink|smaller|trying)[^\n]{0,25}(?:batch|\bbs\b)"
    rb"|(?:batch|\bbs\b)[^\n]{0,25}(?:reduc|lower|halv|decreas)"
)
# Someone who tells the user to, and did not.
_ADVICE = re.compile(
    rb"\bhint|please|consider|suggest|should|could|\byou|\btry (?:a |to |using|sett|reduc|lower|decreas)"
)
_NEW_PROCESS = re.compile(rb"cpu_feature_guard|successfully opened (?:dynamic|cuda) lib|onednn custom operations")
_DEVICE_MADE = re.compile(rb"created (?:tensorflow )?device \(?/")
# A run that came to its end, and words that also stand below a run that did not: `Job finished at`, `done`.
_SUCCESS = re.compile(
    rb"(?:training|run|fit|experiment|everything)\b[^\n]{0,20}\b(?:complete|finish|succe|done)"
    rb"|exit(?:ed)?(?: with)?(?: code| status):? 0\b|^success",
    re.M,
)
_DONE = re.compile(rb"\bjob\b[^\n]{0,20}\b(?:complete|finish|succe|done)|^(?:done|finished)\b", re.M)
_BUT_FAILED = re.compile(rb"fail|\bnot\b|n't\b|error|status(?!:? 0\b)|abort|waiting|before|until|unsuccess")
# Each of the above has one of these in it; plain words are found much faster, and most text has none.
_WORDS = (
    b"retry", b"retries", b"try again", b"trying again", b"fall", b"recover", b"caught", b"skipping", b"relaunch",
    b"restarting", b"fits", b"works", b" ok", b"batch", b" bs", b"cpu_feature", b"successfully opened", b"onednn",
    b"created ", b"complete", b"finish", b"succe", b"done", b"code 0", b"code: 0", b"status 0", b"status: 0", b"loss",
    b"accuracy", b"_step/", b"%|", b"[=", b"[>", b"[.", b"\xe2\x94\x81", b"s/step",
)  # fmt: skip


class Follows(NamedTuple):
    tried_again: bool
    new_process: bool
    steps: bool
    epoch: bool
    done: bool
    succeeded: bool
    device_made: bool


def what_follows(text: bytes) -> Follows:
    lowered = text.lower()
    few = _with_words(lowered)
    succeeded = _says(_SUCCESS, few, unless=_BUT_FAILED)
    return Follows(
        tried_again=_says(_AGAIN, few, unless=_ADVICE),
        new_process=_NEW_PROCESS.search(few) is not None,
        steps=_says(_STEPS, few, unless=_ADVICE),
        epoch=_EPOCH.search(few) is not None,
        done=succeeded or _says(_DONE, few, unless=_BUT_FAILED),
        succeeded=succeeded,
        device_made=_DEVICE_MADE.search(few) is not None,
    )


def _with_words(lowered: bytes) -> bytes:
    """The lines that have one of the words; few have, so each is looked for in the whole text."""
    found: set[tuple[int, int]] = set()
    for word in _WORDS:
        at = lowered.find(word)
        while at >= 0:
            end = lowered.find(b"\n", at)
            end = len(lowered) if end < 0 else end
            found.add((lowered.rfind(b"\n", 0, at) + 1, end))
            at = lowered.find(word, end)
    return b"\n".join(lowered[start:end] for start, end in sorted(found))


def _says(phrase: re.Pattern[bytes], text: bytes, *, unless: re.Pattern[bytes]) -> bool:
    """Is the phrase on a line that does not take it back?"""
    for found in phrase.finditer(text):
        start, end = text.rfind(b"\n", 0, found.start()) + 1, text.find(b"\n", found.end())
        if not unless.search(text, start, len(text) if end < 0 else end):
            return True
    return False
