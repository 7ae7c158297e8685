"""When is a trial that found no room fragmentation, and when simply too large?"""

from __future__ import annotations

import dataclasses

import pytest

from oomtune.diagnosis.nothing_fits import nothing_fits_error
from oomtune.domain import (
    FRAGMENTATION,
    AllocatorState,
    Budget,
    Candidate,
    Kind,
    RaisedError,
    Reply,
    Search,
    Stage,
    TrialError,
)
from oomtune.trials.outcome import Ending, decide
from oomtune.units import format_bytes
from tests.support.finished import finished

MIB = 1024**2
BUDGET = Budget(limit_bytes=100 * MIB)
SEARCH = Search(candidate=Candidate(batch_size=8))


def ended(
    *, in_use: int, largest_free: int, largest_held: int = 1, allocator: str = "GPU_0_bfc", asked: int | None = None
) -> Ending:
    """A trial that found no room; `asked` elements of four bytes are named in its error, if it has one."""
    stalled = RaisedError(type_name="x.AllocatorStalled", bases=("AllocatorStalled",), message="no room", traceback="")
    said = (
        f"OOM when allocating tensor with shape[{asked}] and type float on /job:localhost/replica:0/task:0/device:GPU:0 "
        f"by allocator {allocator}"
    )
    raised = RaisedError(
        type_name="x.ResourceExhaustedError", bases=("ResourceExhaustedError", "OpError"), message=said, traceback=""
    )
    state = AllocatorState(
        allocator=allocator,
        limit_bytes=100 * MIB,
        in_use_bytes=in_use * MIB,
        largest_free_bytes=largest_free * MIB,
        largest_held_bytes=largest_held * MIB,
        fragmentation=0.8,
    )
    error = stalled if asked is None else raised
    return Ending(reply=Reply(stage=Stage.TRAIN, allocator=state, error=error), exit_code=0)


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        (ended(in_use=70, largest_free=6, asked=10 * MIB // 4), "fragmentation"),
        (ended(in_use=70, largest_free=6, asked=40 * MIB // 4), "device_oom"),
        (ended(in_use=90, largest_free=1, asked=5 * MIB // 4), "device_oom"),
        (ended(in_use=85, largest_free=1, asked=5 * MIB // 4), "device_oom"),
        (ended(in_use=70, largest_free=6, largest_held=8), "fragmentation"),
        (ended(in_use=70, largest_free=9, largest_held=8), "device_oom"),
        (ended(in_use=70, largest_free=12, asked=10 * MIB // 4), "device_oom"),
        (ended(in_use=1, largest_free=6, largest_held=8), "device_oom"),
        (ended(in_use=70, largest_free=9, largest_held=35), "device_oom"),
    ],
    ids=[
        "it would have fitted into what is free",
        "it asked for more than is free",
        "little is free",
        "just 15 % is free",
        "not known: one more tensor like the largest would have fitted",
        "not known: there is a piece for any tensor that is held",
        "there was a piece for what was asked",
        "next to nothing is held",
        "not known: one more like the largest is more than is free",
    ],
)
def test_it_is_fragmentation_only_where_there_was_room_in_sum(ending: Ending, code: str) -> None:
    outcome = decide(SEARCH, BUDGET, ending)
    assert outcome.kind is Kind.DEVICE_OOM
    assert outcome.allocator is not None
    assert outcome.error is not None
    assert outcome.error.code == code


def test_the_allocators_own_figures_are_said_and_its_setting_is_suggested() -> None:
    error = decide(SEARCH, BUDGET, ended(in_use=70, largest_free=6, asked=10 * MIB // 4)).error
    assert error is not None
    assert error.message == (
        "fragmentation: 30% of the limit of 100 MiB is free, in pieces of at most 6.0 MiB, and 10.0 MiB was asked for "
        "(GPU_0_bfc, 70.0 MiB in use, fragmentation 0.80)"
    )
    assert "device.allocator: cuda_malloc_async" in error.hint


def test_on_the_cpu_a_smaller_batch_is_what_helps() -> None:
    ending = ended(in_use=70, largest_free=6, largest_held=8, allocator="bfc_cpu_allocator_for_gpu")
    error = decide(SEARCH, BUDGET, ending).error
    assert error is not None
    assert "the model has tensors of 8.0 MiB" in error.message
    assert error.hint.startswith("take a smaller batch")


PIECES = TrialError(
    code=FRAGMENTATION, message="fragmentation: 30% of the limit is free", hint="take another allocator"
)


@pytest.mark.parametrize(("needed", "blamed"), [(None, True), (90, True), (1_500, False)])
def test_fragmentation_is_blamed_for_what_does_not_fit_only_where_there_is_memory_for_it(
    needed: int | None, blamed: bool
) -> None:
    result = dataclasses.replace(finished(limit_bytes=30 * MIB), budget=BUDGET)
    needed_bytes = None if needed is None else needed * MIB
    error = nothing_fits_error(result, SEARCH.candidate, needed_bytes, PIECES)
    assert (PIECES.message in error.message) == blamed
    assert error.hint.startswith(PIECES.hint) == blamed
    assert needed is None or format_bytes(needed * MIB) in error.message
