"""Is a text a failure for want of memory? Texts of our own, in the forms that TensorFlow and its world use."""

from __future__ import annotations

import pytest

from oomtune import classify
from oomtune.diagnosis import Cause
from tests.support.failure_texts import ALL, DEVICE, NOT, Text
from tests.support.harder_texts import HARDER

GPU = "/job:localhost/replica:0/task:0/device:GPU:0"


@pytest.mark.parametrize("text", [*ALL, *HARDER], ids=lambda text: text.name)
def test_each_text_is_called_what_it_is(text: Text) -> None:
    found = classify(text.text)
    exit_code = 0 if found.is_memory else 3 if found.failed else 2
    assert (found.kind, exit_code) == (text.kind, text.exit_code), (found.cause, found.line)


def test_the_facts_of_the_failure_are_read() -> None:
    found = classify(DEVICE[0].text)
    assert found.tensor_shape == (96, 512, 2048)
    assert (found.dtype, found.op, found.allocator, found.device) == ("float16", "MatMul", "GPU_0_bfc", GPU)
    assert found.bytes_requested == 96 * 512 * 2048 * 2
    assert (
        classify("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 3221225472 bytes.").bytes_requested
        == 3 << 30
    )


def cause_of(name: str) -> Cause | None:
    return classify(next(text.text for text in (*ALL, *HARDER) if text.name == name)).cause


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("watches", Cause.LIMIT),
        ("threads", Cause.LIMIT),
        ("thread storage", Cause.LIBRARY),
        ("segments of a loader", Cause.SHARED_MEMORY),
        ("an illegal access", Cause.GPU_FAULT),
        ("a TPU kernel's own memory", Cause.KERNEL),
        ("nodes of a cluster", Cause.QUOTA),
        ("timeout", Cause.STOPPED),
    ],
)
def test_what_it_was_instead_is_told(name: str, cause: Cause) -> None:
    assert cause_of(name) is cause


def test_the_reason_is_told_and_not_the_error_that_carries_it() -> None:
    found = classify(
        "grpc._channel._InactiveRpcError: <_InactiveRpcError of RPC that terminated with:\n"
        "\tstatus = StatusCode.RESOURCE_EXHAUSTED\n"
        '\tdetails = "Received message larger than max (9437184 vs. 4194304)"\n>'
    )
    assert found.cause is Cause.MESSAGE


def test_what_was_logged_before_an_error_without_a_reason_gives_the_facts() -> None:
    by_name = {text.name: classify(text.text) for text in HARDER}
    scratch = by_name["scratch space of an RNN"]
    assert (scratch.tensor_shape, scratch.dtype, scratch.bytes_requested) == ((805306368,), "uint8", 805306368)
    assert cause_of("no support, and nothing logged") is Cause.GPU_LIBRARY


def test_a_failure_that_was_survived_is_told_apart_from_none() -> None:
    by_name = {text.name: classify(text.text) for text in NOT}
    assert by_name["caught, and a smaller batch ran to its end"].survived
    assert not by_name["a run that went well"].survived


def test_the_last_failure_counts() -> None:
    found = classify(next(text.text for text in DEVICE if text.name == "caught once, and not the second time"))
    assert found.tensor_shape == (256, 8)
    assert found.survived
