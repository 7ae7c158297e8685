"""Failures that are not memory: other resources that run out, and everything else that ends a run."""

from __future__ import annotations

import re
from typing import NamedTuple

from oomtune.diagnosis.frames import EXCEPTION, Frame
from oomtune.diagnosis.result import Cause


class Failure(NamedTuple):
    cause: Cause
    ambiguous: bool = False
    detail: int = 1
    silent: bool = False
    """Does it leave the reason to what the runtime logged before it?"""


_RESOURCES = (
    (Cause.LIBRARY, r"static tls block"),
    (
        Cause.KERNEL,
        r"(?<!hsa_status_error_)out_of_resources|resources requested for launch|out of resource: shared"
        r"|shared memory (?:size )?(?:limit|required|requested|exceed)|\bin shared memory|register file"
        r"|memory space (?:[vsc]mem|sflag)",
    ),
    (
        Cause.LIMIT,
        r"inotify|can't start new thread|thread creation|pthread_create(?!.*cannot allocate)|rlimit_n|memlock"
        r"|locked memory|blockingioerror|resource temporarily unavailable|\bpids? (?:cgroup )?limit",
    ),
    (
        Cause.SHARED_MEMORY,
        r"/dev/shm|shared memory|\(shm\)|shm_open",  # noqa: S108 - nothing is written there
    ),
    (
        Cause.DISK,
        r"no space left|disk quota|disk (?:is )?full|\benospc\b|errno 28\b|not enough (?:disk|free) space"
        r"|ephemeral-storage|\.tempstate\d",
    ),
    (
        Cause.FILES,
        r"too many open files|\bemfile\b|errno 24\b"
        r"|exhausted(?:error)?(?: \(see above for traceback\))?:\s+[^\s:;]*[/\\][^\s;]*(?:;|\s*$)"
        r"|events\.out\.tfevents",
    ),
    (
        Cause.MESSAGE,
        r"larger than max|message length|message too (?:large|long)|larger than 2 ?gb|maximum protobuf"
        r"|exceeds maximum .{0,30}size",
    ),
    (
        Cause.QUOTA,
        r"\bquota\b|rate.?limit|too many (?:requests|pending|outstanding|concurrent)|\b429 \w"
        r"|limit exceeded for|unable to allocate (?:resources|gpus|nodes)|allocate a gpu|failedscheduling"
        r"|nodes are available: |out of capacity|no more capacity|insufficient\w*capacity|bandwidth exhausted",
    ),
)
# These names are also said by those who only use the thing.
_ONLY_NAMED = {Cause.SHARED_MEMORY, Cause.QUOTA, Cause.LIMIT, Cause.KERNEL, Cause.MESSAGE}
_RUNS_OUT = re.compile(
    r"no space|no more|full\b|insufficient|exceed\w*|too (?:many|small|low|large|long)|unable|can(?:no|'|’)t|could not"
    r"|couldn't|not enough|fail\w*|reached|unavailable|larger than|exhausted|error|out of",
    re.I,
)
_STOP = re.compile(
    r"^\^C|\bgracefully stopping|^stopping \S+ ?\.\.\.|\bsending (?:signal )?(?:SIG)?(?:TERM|KILL|INT|9|15)\b(?! when)"
    r"|killing process .{0,60}with signal|^\[\d+\]\s*[+-]?\s+(?:\d+ )?terminated\b"
    r"|^(?:zsh|bash|sh): (?:line \d+: )?terminated|\b\d+ Terminated\s+\S|oomkilled\W+false"
    r"|\bfailed (?:liveness|startup) probe",
    re.I,
)
_FAILURES = (
    (
        Failure(Cause.STOPPED, detail=2),
        r"\bKeyboardInterrupt\b|\bSIGTERM\b(?! (?:limits|when))|\bSIGINT\b|\bsignal 15\b"
        r"|^(?!.*\bstate:)(?:.*\s)?Terminated\s*$|(?-i:CANCELLED AT)(?!.*DUE TO)",
    ),
    (
        Failure(Cause.TIME, detail=2),
        r"due to (?:time limit|preemption)|time ?limit (?:reached|exceeded)|term_runlimit|walltime"
        r"|\bpreempted\b",
    ),
    (
        Failure(Cause.NUMBERS),
        r"\bloss(?:\b|_)[^\n]{0,20}[:=] ?(?:nan|inf)\b|tensor had (?:nan|inf)|nan or inf|loss is nan"
        r"|nanlossduring",
    ),
    (
        Failure(Cause.NO_DEVICE),
        r"error_no_device|no cuda-capable device|no such device|insufficient.{0,20}driver"
        r"|driver version is insufficient|could not satisfy (?:explicit )?device",
    ),
    (
        Failure(Cause.LIBRARY),
        r"could not load dynamic library|cannot open shared object|dll load failed|undefined symbol"
        r"|^\S*(?:ImportError|ModuleNotFoundError)\b|cannot dlopen|\blib\w+\.so[.\d]*: cannot|version.mismatch",
    ),
    (
        Failure(Cause.GPU_FAULT),
        r"illegal (?:memory )?(?:access|address|instruction)|illegal_(?:address|instruction)|launch_failed"
        r"|launch failure|misaligned|device-side assert|uncorrectable ecc|memory access fault"
        r"|gpu (?:has )?fallen off|xid\W+\d|gpu sync failed",
    ),
    (Failure(Cause.GPU_LIBRARY), r"\bptxas\b.{0,30}(?:error|exited|fatal)|compilation of ptx"),
    (
        Failure(Cause.GPU_LIBRARY, ambiguous=True),
        r"\b(?:(?:cu|hip|roc|mi)\w+|hsa)_status_\w+|convolution algorithm|no algorithm worked|dnn implementation"
        r"|blas \S+ launch failed|cudnn failed to init|cuda_error_\w+|cuda error|hip error"
        r"|nccl.{0,20}error|nccl\w+ failed|command buffer exited with error"
        r"|failed to (?:create|make|initialize) (?:\w+ )?(?:cufft|cublas|cudnn|cusolver)",
    ),
    (
        Failure(Cause.GPU_LIBRARY, silent=True),
        r"without (?:blas|dnn|fft|rng) support|\b(?:then|do)rnn\w+"
        r"|\bcu(?:blas|dnn|fft|solver|sparse|rand)\w* call failed",
    ),
    (
        Failure(Cause.CRASH, detail=2),
        r"segmentation fault|\bsegfault\b|\bSIGSEGV\b|bus error|\bSIGBUS\b|illegal instruction|\bSIGILL\b"
        r"|stack smashing|invalid (?:pointer|size|next size)|double free|0xc0000005",
    ),
    (
        Failure(Cause.CRASH, ambiguous=True, detail=0),
        r"core dumped|^aborted\b|error: aborted|\bSIGABRT\b"
        r"|exit(?:ed)?(?: with)? (?:code|status):? ?(?:134|-6)\b|terminate called",
    ),
)
_RESOURCES_READ = tuple((cause, re.compile(pattern, re.I)) for cause, pattern in _RESOURCES)
_FAILURES_READ = tuple((failure, re.compile(pattern, re.I)) for failure, pattern in _FAILURES)

# TensorFlow's wrappers, whose reason stands on another line.
_WRAPPER = re.compile(
    r"graph execution error|_derived_|root error\(s\) found|operation was cancelled|startabort|traceback \(most recent",
    re.I,
)
# Errors of the runtime itself: `InternalError: Failed to create session.` says what could not be done, and not why.
_SILENT = re.compile(r"\b(?:Internal|Unknown|Aborted)Error\b|Error: (?:INTERNAL|UNKNOWN|ABORTED): ")
# Words with which such an error gives a reason of its own.
_REASON = re.compile(
    r"\w(?:Error|Exception)\b|errno|\b(?:files?|folder|director\w+|path|disk|write|read|pars\w+|decod\w+|connect\w*"
    r"|sockets?|network|rpc|dimensions?|libdevice|versions?|assert\w*|already|invalid|expected"
    r"|mismatch\w*|incompatible|unsupported|not (?:found|supported|implemented))\b",
    re.I,
)
_HARMLESS = re.compile(
    r"unable to register|already (?:been )?registered|cuinit: .*no_device|computation_placer|tf-trt warning|numa node"
    r"|gpu interconnect|deprecat", re.I
)  # fmt: skip
# How a data set ends: logged by everyone, and raised only to someone who asks for more.
_END_OF_DATA = re.compile(r"end of sequence|out of range: end", re.I)
_GENERIC = re.compile(
    r"^(?:\[?(?:error|fatal|critical)\b\]?[:\s])|\b(?:fatal error|panic):|\berror: |[-|:\]] ?(?:ERROR|FATAL|CRITICAL)\b"
    r"|exit(?:ed)?[ _]?(?:with )?(?:an? )?(?:non-zero )?(?:code|status)[\"']?(?: of)?\s*[:=]?\s*(?!0\b)-?\d+\b"
    r"|non-zero exit|\breason[\"']?:\s*[\"']?error\b|kernel (?:appears to have )?died"
    r"|check failed|can't open file|: command not found"
    r"|terminated abruptly|unexpectedly terminated|low on resource|\bevicted\b",
    re.I,
)


def resource(text: str, frame: Frame) -> Cause | None:
    """The resource other than memory that the line says ran out."""
    cause = next((cause for cause, pattern in _RESOURCES_READ if pattern.search(text)), None)
    in_passing = cause in _ONLY_NAMED and (frame is Frame.NONE or frame.is_logged) and not _RUNS_OUT.search(text)
    return None if in_passing else cause


def is_stop(text: str) -> bool:
    """Does someone say that they stop the run, or that memory was not why it was stopped?"""
    return _STOP.search(text) is not None


def failure(text: str, frame: Frame) -> Failure | None:
    """Any other failure that the line tells of."""
    raised = EXCEPTION.search(text)
    if _HARMLESS.search(text) or (raised is None and (_END_OF_DATA.search(text) or not _speaks(text, frame))):
        return None
    known = next((failure for failure, pattern in _FAILURES_READ if pattern.search(text)), None)
    if known is not None:
        return known
    if raised is not None:
        wrapper = bool(_WRAPPER.search(text))
        silent = bool(_SILENT.search(text)) and not _REASON.search(text, raised.end())
        return Failure(Cause.PROGRAM, ambiguous=wrapper, detail=0 if wrapper else 1, silent=silent)
    if frame is Frame.FATAL:
        return Failure(Cause.CRASH, ambiguous=True, detail=0)
    if frame.is_logged:
        return None
    return Failure(Cause.PROGRAM, detail=0) if _GENERIC.search(text) else None


def _speaks(text: str, frame: Frame) -> bool:
    """Is it in an error's frame, or one of the few failures that are told without one?"""
    if frame is not Frame.NONE:
        return True
    short = len(text) < 200 or ":" in text[:80]
    return short and (any(pattern.search(text) for _, pattern in _FAILURES_READ) or bool(_GENERIC.search(text)))
