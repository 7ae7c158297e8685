"""What one line says of a failure: a status, a resource, a place, and whether it was raised or only logged.

Words alone mislead. TensorFlow logs allocations that failed and did not matter, RESOURCE_EXHAUSTED also stands for
full disks, quotas and long messages, and prose about memory is no failure. So a line counts by what it says was
exhausted, where, and in what frame: an exception, a status, a log line of the runtime, a word of the kernel.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from oomtune.diagnosis import failures, tensors
from oomtune.diagnosis.encodings import KILLED, as_written, decoded
from oomtune.diagnosis.frames import Frame, frame_of, is_mistake, is_prose, is_source, starts_with_it, without_prefix
from oomtune.diagnosis.place import CODE, HOST_REFUSED, STATUS, place
from oomtune.diagnosis.result import Cause, DiagnosisKind


class Weight(IntEnum):
    OPTIONAL = 1
    """Memory was refused to someone who could do without."""
    LOGGED = 2
    """Refused, and whether that mattered shows in what follows."""
    KILLED = 3
    """Ended from outside, by a signal that the kernel uses when memory runs out and others use too."""
    RAISED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    kind: DiagnosisKind
    weight: Weight
    cause: Cause | None = None
    ambiguous: bool = False
    """A failure that want of memory may be behind, if there are other signs of that."""
    logged: bool = False
    """Was it written by the runtime and not raised? Then steps that follow show that it did not matter."""
    warned: bool = False
    """Said as a warning: proof beside what tells nothing, and not beside an error that leaves its reason out."""
    silent: bool = False
    """A failure that leaves its reason to what was logged before it."""
    from_driver: bool = False
    mistake: bool = False
    """An exception of a type for mistakes in the program: nothing that ran out leads to one."""
    denies_memory: bool = False
    errno_only: bool = False
    """The system's words for a call that failed for want of memory of some kind, and no size: it may be a limit."""
    detail: int = 0
    """How much the line tells; the one that tells most is shown."""


# An allocation that failed, in all the words for it. Ports, nodes and sessions are allocated too: what was refused has
# to be bytes.
_BYTES = (
    r"(?:[\w'-]+ ){0,4}?(?:memory|bytes|tensors?|buffers?|arrays?|scratch|workspace|chunk|storage"
    r"|[\d.,]+ ?(?:[kmgt]i?b?|b|bytes)\b|\d{5,}(?![\d-]))"
)
_REFUSED = re.compile(
    r"out of (?:\w+ ){0,2}memory|out-of-memory|outofmemory|\b(?-i:OOM)\b"
    r"|(?:not enough|insufficient|no more|low on) (?:\w+ )?memory"
    r"|memory (?:is )?exhausted|exhausted .{0,20}memory|memory (?:is )?not available (?:to|for) (?:re)?alloc"
    rf"|(?:fail\w*|unable|could not|couldn't|can ?not|can't|not possible)(?: to)? (?:re)?alloc\w* {_BYTES}"
    rf"|(?:memory|buffer|tensor|scratch) \(?.{{0,30}}could not be allocated|\balloc\w* of {_BYTES}.{{0,30}} fail"
    rf"|memory alloc\w* (?:has )?fail|\b[mc]alloc\w* fail|error allocating {_BYTES}"
    r"|attempting to (?:reserve|allocate) [\d.]+"
    r"|available free mem\w*\s*: 0 ?mb\b|exceeded hbm capacity|dst tensor is not initialized|memoryerrors?\b",
    re.I,
)
# A setting or a service that is about memory, and not that it ran out.
_SETTING = re.compile(
    r"\boom\b[\w -]{0,20}\b(?:enabled|disabled|armed|protect\w*|polic\w+|watch\w*|monitor\w*|guard|safe|aware)\b"
    r"|\boom[- ](?:safe|aware|guard|proof)|\bno oom\b",
    re.I,
)
_OPTIONAL = re.compile(
    r"caller indicates that this is not a failure|exceeds \d+% of (?:free )?system memory|tcmalloc: large alloc"
    r"|this is benign|skipping this check",
    re.I,
)
_FROM_DEVICE = re.compile(r"failed to alloc\w* [\d.]+\w* (?:\(\d+ bytes\) )?(?:from device|unified memory)", re.I)
_RAN_OUT = re.compile(r"allocator \(\S+\) ran out of memory trying to allocate", re.I)
_ONE_ONLY = re.compile(r"could not allocate pinned host memory", re.I)
# A refusal that gives another reason than memory.
_OTHER_CODE = re.compile(r"\bcuda_error_(?!out_of_memory)\w+|\bhiperror(?!outofmemory|memory|_t\(1002)\w+", re.I)
# Nothing is refused to someone who asks for what can't be: the argument is wrong, and there may be memory.
_WRONG_ARGUMENT = re.compile(r"\binvalid[ _]?argument|\bnegative (?:dimension|size|shape)", re.I)
_NO_BYTES = re.compile(r"allocat(?:e|ing) 0(?: bytes|\. |\s*$)", re.I)
_FREE = re.compile(r"memory usage: (\d+) bytes free, (\d+) bytes total", re.I)

_ERRNO_ONLY = re.compile(r"^(?:\S+:\s+)*(?:\[errno 12\] )?cannot allocate memory\W*$", re.I)

# The kernel, a scheduler or a container ended the process, and says that memory was why.
_ENDED_FOR_MEMORY = re.compile(
    r"out of memory: kill|oom[-_ ]?kill(?!\w*\W+(?:false|no\b|0\b|enabled|disabled))|oom_reaper|term_memlimit"
    r"|(?:exceed\w*|beyond|over|reach\w*) (?:[\w%.]+ ){0,4}memory (?:\w+ )?(?:limit|budget)"
    r"|memory (?:usage )?limit exceeded"
    r"|\bmem \d+\w* exceeded limit|low on resource: memory|due to (?:\w+ )?memory (?:pressure|limit)"
    r"|task \d+: out of memory|running low on memory|out-of-memory handler|all available ram"
    r"|earlyoom.{0,20}(?:low memory|sending SIG\w+ to )|oomd.{0,40}\bkilled|\bmemorystatus\w*: killing"
    # What Windows ends a process with when there is no memory, or no more may be committed.
    r"|\b0xc000(?:0017|012d)\b|(?<!\d)-(?:1073741801|1073741523)\b",
    re.I,
)
# A job's state as Slurm's tools and mails show it, in full or cut to a column's width; a list of states is none.
_STATE = r"(?<![\w.])OUT_OF_ME(?:MORY|[MOR]*\+)(?=\s*(?:$|[|(\d]|\w+=))"
_ENDED_OUT_OF_MEMORY = re.compile(
    rf"(?:^(?:Job ?)?State\s*[:=]?\s*|^\d[^|]*\|(?:[^|]*\|)*|(?i:\brun time\b|\bended\b).{{0,40}}[\s,]){_STATE}"
    rf"|{_STATE}\|?\s*\d+:\d+\b"
)
_OTHER_STATE = re.compile(r"\b(?:COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL|PREEMPTED)\b")
# Alone on its line, glued to the end of a progress bar, or as a shell tells of its job. A sentence has it elsewhere.
_IN_OTHER_WORDS = tuple(decoded(word) for word in as_written(KILLED))
_ELSEWHERE = "|".join(map(re.escape, _IN_OTHER_WORDS))
_KILLED = re.compile(
    rf"(?:^|[\d\])%.>━=]|\ds|step)\s*Killed(?:: 9)?\s*$|\b\d+ (?:[Kk]illed|{_ELSEWHERE})\s+\S|^(?:{_ELSEWHERE})\s*$"
    r"|^(?:zsh|bash|sh): (?:line \d+: )?[Kk]illed\b|^\[\d+\]\s*[+-]?\s+(?:\d+ )?[Kk]illed\b"
    r"|\bsignal: [Kk]illed|SIGKILL|\bsignal 9\b|\bKilledWorker\b"
    r"|(?i:\b(?:exit|return|status)[ _]?(?:ed)?(?:code|status)?[\"']?"
    r"(?: with)?(?: code| status)?[\"']?[:=]?(?: of)?\s*(?:137|-9|247)\b)"
)
_CLAUSE_END = re.compile(r"[;.] ")
# Whoever kills with a reason of their own, told also after the signal, was not the kernel.
_DENIED = re.compile(r"oomkilled\W+false|\bfailed (?:liveness|startup) probe", re.I)
_ENDED = re.compile(r"\b(?:exited|terminated|ended|returned|died|killed)\b", re.I)


def sign_of(line: str, raised: str = "") -> Sign | None:
    """What the line says of a failure; None for nearly all lines. `raised` is the type that a traceback led to."""
    text, frame = without_prefix(line), frame_of(line)
    if raised and frame not in (Frame.PROGRAM, Frame.RAISED):
        frame = Frame.PROGRAM if is_mistake(raised, text) else Frame.RAISED
    by_the_runtime = frame.is_logged or frame is Frame.FATAL
    if not text or (is_source(text) and not raised):
        return None
    if is_prose(text) and not by_the_runtime:
        return _before_the_advice(text, frame)
    if frame is Frame.INFO:
        return _optional(text, frame) or (_killed(text, frame) if _ENDED.search(text) else None)
    lowered = text.lower()
    rules = (rule for rule, words in _RULES if not words or any(word in lowered for word in words))
    found = next((sign for rule in rules if (sign := rule(text, frame))), None)
    if found is None and raised:
        return Sign(kind="not_oom", weight=Weight.RAISED, cause=Cause.PROGRAM, detail=1)
    return found


def _before_the_advice(text: str, frame: Frame) -> Sign | None:
    """Prose about memory tells of no failure; but of another resource it may, and go on with what one can do."""
    if frame is not Frame.NONE:
        return _of_another_resource(text, frame)
    clause = _CLAUSE_END.split(text, maxsplit=1)[0]
    return None if clause == text or is_prose(clause) else _of_another_resource(clause, frame)


def _optional(text: str, _frame: Frame) -> Sign | None:
    if _OPTIONAL.search(text):
        return Sign(kind=place(text), weight=Weight.OPTIONAL, logged=True)
    free = _FREE.search(text)
    if free and int(free[1]) < 0.03 * int(free[2]):
        return Sign(kind="device_oom", weight=Weight.OPTIONAL, logged=True)
    return None


def _of_another_resource(text: str, frame: Frame) -> Sign | None:
    cause = Cause.GPU_LIBRARY if _NO_BYTES.search(text) else failures.resource(text, frame)
    if cause is None:
        return None
    return Sign(kind="not_oom", weight=Weight.RAISED, cause=cause, logged=frame.is_logged, detail=3)


def _ended_for_memory(text: str, frame: Frame) -> Sign | None:
    state = bool(_ENDED_OUT_OF_MEMORY.search(text)) and not _OTHER_STATE.search(text)
    said = state or bool(_ENDED_FOR_MEMORY.search(text))
    if said and frame is not Frame.PROGRAM and not _SETTING.search(text):
        return Sign(kind="host_oom", weight=Weight.RAISED, logged=frame.is_logged, detail=2)
    return None


def _stopped(text: str, frame: Frame) -> Sign | None:
    """Someone says that they end it, before the signal that does."""
    if frame in (Frame.INFO, Frame.PROGRAM) or not failures.is_stop(text):
        return None
    denies = bool(_DENIED.search(text))
    return Sign(kind="not_oom", weight=Weight.RAISED, cause=Cause.STOPPED, denies_memory=denies, detail=2)


def _killed(text: str, _frame: Frame) -> Sign | None:
    return Sign(kind="host_oom", weight=Weight.KILLED, detail=1) if _KILLED.search(text) else None


def _driver(text: str, frame: Frame) -> Sign | None:
    if not CODE.search(text):
        return None
    logged = frame.is_logged
    refused = bool(_FROM_DEVICE.search(text))
    return Sign(
        kind=place(text),
        # The allocator asks the driver for nearly all of a card and then for less and less, and may be content.
        weight=Weight.OPTIONAL if refused else Weight.LOGGED if logged else Weight.RAISED,
        logged=logged or refused,
        warned=frame is Frame.WARNED,
        from_driver=True,
        detail=2,
    )


def _memory(text: str, frame: Frame) -> Sign | None:
    """An allocation that failed, told in an error's frame or in a form that only errors have."""
    tensor, host = tensors.is_refused(text), bool(HOST_REFUSED.search(text))
    if not (tensor or host or _REFUSED.search(text)) or frame is Frame.PROGRAM or _SETTING.search(text):
        return None
    ran_out = bool(_RAN_OUT.search(text)) or bool(_ONE_ONLY.search(text))
    if frame is Frame.NONE and not (tensor or ran_out or host or starts_with_it(_REFUSED, text)):
        return None
    if _OTHER_CODE.search(text) and not CODE.search(text):
        return None
    if _WRONG_ARGUMENT.search(text) and not (tensor or STATUS.search(text) or CODE.search(text)):
        return None
    op_failed = "OP_REQUIRES failed" in text or bool(STATUS.search(text))
    logged = frame.is_logged or ran_out
    return Sign(
        kind=place(text),
        weight=Weight.LOGGED if ran_out or (logged and not op_failed) else Weight.RAISED,
        logged=logged,
        warned=frame is Frame.WARNED and not ran_out,
        errno_only=bool(_ERRNO_ONLY.search(text)) and not tensor,
        detail=5 if tensor else 4 if STATUS.search(text) else 3 if not ran_out else 1,
    )


def _bare_status(text: str, _frame: Frame) -> Sign | None:
    if STATUS.search(text):
        return Sign(kind="not_oom", weight=Weight.RAISED, cause=Cause.PROGRAM, ambiguous=True)
    return None


def _other_failure(text: str, frame: Frame) -> Sign | None:
    found = failures.failure(text, frame)
    if found is None:
        return None
    logged = frame.is_logged or found.cause is Cause.NUMBERS
    return Sign(
        kind="not_oom",
        weight=Weight.LOGGED if logged else Weight.RAISED,
        cause=found.cause,
        ambiguous=found.ambiguous,
        logged=logged,
        silent=found.silent,
        mistake=frame is Frame.PROGRAM,
        detail=found.detail,
    )


# Each rule with words without which it has nothing to say; plain words are found much faster than phrases.
_RULES: tuple[tuple[Callable[[str, Frame], Sign | None], tuple[str, ...]], ...] = (
    (_optional, ("memory", "benign", "skipping", "tcmalloc")),
    (_of_another_resource, ()),
    (_ended_for_memory, ("mem", "oom", "available ram", "out_of_me", "0xc0", "-10737")),
    (_driver, ("memory", "alloc", "hiperror", "0x8007000e")),
    (
        _memory,
        ("memory", "alloc", "oom", "hbm", "paging", "errno 12", "enomem", "winerror", "initialized", "avail"),
    ),
    (_stopped, ("stop", "sending", "terminated", "^c", "killing", "oomkilled", "probe")),
    (_killed, ("kill", "signal 9", "137", "-9", "247", *map(str.lower, _IN_OTHER_WORDS))),
    (_bare_status, ("exhausted",)),
    (_other_failure, ()),
)
