"""A diagnosis: the facts, how full it was, the layer, and noise that changes nothing."""

from __future__ import annotations

import dataclasses
import string
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomtune.diagnosis import Diagnosis, classify, diagnose
from oomtune.diagnosis.lines import telling_lines
from oomtune.diagnosis.names import OPTIMIZER, layer_of, size_of
from tests.support.crashes import DUMP, GIB, GPU, advice, oom
from tests.support.failure_texts import ALL, DEVICE, HOST, Text
from tests.support.harder_texts import HARDER


@pytest.mark.parametrize(
    ("text", "used", "limit"),
    [
        (DUMP, 8053063680, 8 * GIB),
        ("RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 18.0G of 16.0G hbm.", 18 * GIB, 16 * GIB),
        ("CUDA out of memory error: Tried to allocate 2.00 GiB (GPU 0; 11.00 GiB total capacity; 8.00 GiB already allocated)", 8 * GIB, 11 * GIB),
        ("no room: AllocatorError: failed to allocate memory with 3.0 MiB of 4 MiB in use", 3 << 20, 4 << 20),
        ("slurmstepd: error: Job 1 exceeded memory limit (2048 > 1024), being killed", 2 << 20, 1 << 20),
        ("Out of memory: Killed process 1 (python) total-vm:9kB, anon-rss:1024kB", 1 << 20, None),
    ],
)  # fmt: skip
def test_how_full_it_was_is_read_from_dumps_and_messages(text: str, used: int, limit: int | None) -> None:
    found = classify(text)
    assert (found.is_memory, found.in_use_bytes, found.limit_bytes) == (True, used, limit)


@pytest.mark.parametrize(
    ("op", "layer"),
    [
        ("model/block_3/attention/MatMul", "block_3/attention"),
        ("gradient_tape/model/lstm/while/gradients/AddN", "lstm"),
        ("StatefulPartitionedCall/functional_1/conv2d_4/Conv2D", "conv2d_4"),
        ("gradients/encoder/dense/MatMul_grad/MatMul_1", "encoder/dense"),
        ("training/Adam/gradients/block1_conv1/convolution_grad/Conv2DBackpropInput", "block1_conv1"),
        ("Adam/Adam/update_3/ResourceApplyAdam", OPTIMIZER),
        ("training_1/RMSprop/mul_7", OPTIMIZER),
        ("adamw/add_12", OPTIMIZER),
        ("gradient_tape/model/block_3/conv2d_7/Conv2D/Conv2DBackpropFilter", "block_3/conv2d_7"),
        ("sequential/lstm/TensorArrayUnstack/TensorListFromTensor", "lstm"),
        ("StatefulPartitionedCall/gradient_tape/functional_1_1/conv2d_3_1/convolution/Conv2DBackpropInput", "conv2d_3"),
        ("functional_1/multi_head_attention_1_2/softmax_3/mul", "multi_head_attention_1/softmax_3"),
        ("model/res_2_1/Relu", "res_2_1"),
        ("mobilenet/Conv1/Conv2D", "mobilenet/Conv1"),
        ("StatefulPartitionedCall", None),
        ("MatMul", None),
        ("", None),
    ],
)
def test_an_op_belongs_to_a_layer_or_to_the_optimizer(op: str, layer: str | None) -> None:
    assert layer_of(op) == layer


def test_sizes_follow_from_shape_and_type() -> None:
    assert [size_of((3, 5), dtype) for dtype in ("float32", "bfloat16", "bool", "complex128", "string", None)] == [
        60, 30, 15, 240, None, None,
    ]  # fmt: skip
    assert oom([2, 3], dtype="double").dtype == "float64"


ASYNC = """\
2023-01-02 03:04:05.6: E tensorflow/core/common_runtime/gpu/gpu_cudamallocasync_allocator.cc:288] gpu_async_0 \
cuMemAllocAsync failed to allocate 536870912 bytes: CUDA error: out of memory (CUDA_ERROR_OUT_OF_MEMORY)
 Reported by CUDA: Free memory/Total memory: 900000000/12884901888
2023-01-02 03:04:05.6: E tensorflow/core/common_runtime/gpu/gpu_cudamallocasync_allocator.cc:293] Stats: \
Limit:                      9000000000
InUse:                      8800000000
MaxInUse:                   8900000000
ResourceExhaustedError: failed to allocate memory [Op:Mul]
"""


def test_figures_are_those_of_one_allocator() -> None:
    found = classify(ASYNC)
    assert (found.allocator, found.in_use_bytes, found.limit_bytes) == ("gpu_async_0", 8_800_000_000, 9_000_000_000)
    assert not any("cuda_malloc_async" in line for line in advice(found))
    of_another = (
        DUMP.replace("GPU_0_bfc", "GPU_1_bfc").replace("8589934592", "4294967296").replace("8053063680", "1000")
    )
    both = oom([64, 1024, 1024], dump=of_another + DUMP)
    assert (both.in_use_bytes, both.limit_bytes) == (8053063680, 8 * GIB)


def test_an_op_stands_below_its_error_and_a_buffer_below_its_program() -> None:
    above = f"\t [[{{{{node other/Relu}}}}]]\nOOM when allocating tensor with shape[8,9] and type float on {GPU}\n"
    assert classify(f"{above}\t [[{{{{node own/MatMul}}}}]]").op == "own/MatMul"
    shipped = classify(f'{{"log":"OOM when allocating tensor with shape[8,9] on {GPU} by allocator GPU_0_bfc","n":1}}')
    assert (shipped.allocator, shipped.device) == ("GPU_0_bfc", GPU)
    program = classify(next(text.text for text in HARDER if text.name == "a TPU program that is too large"))
    assert (program.tensor_shape, program.dtype) == ((64, 16, 1024, 1536), "bfloat16")


def test_a_program_asks_for_more_than_its_largest_buffer() -> None:
    found = classify(
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 12884901888 bytes.\nPeak buffers:\n\tBuffer 1:\n"
        '\t\tSize: 2.00GiB\n\t\tOperator: op_name="model/attn/Softmax"\n\t\tShape: f32[8,16,2048,2048]\n'
    )
    assert (found.bytes_requested, found.tensor_shape) == (12 * GIB, (8, 16, 2048, 2048))


@pytest.mark.parametrize(
    ("text", "shape", "dtype", "size"),
    [
        ("MemoryError: Unable to allocate array with shape (300000, 700) and data type float64", (300000, 700), "float64", 1_680_000_000),
        (f"OOM when allocating tensor with shape[] and type double on {GPU} by allocator GPU_0_bfc", (), "float64", 8),
        ("OOM when allocating tensor with shape [64 128] and type float", (64, 128), "float32", 4 * 64 * 128),
        (f"ResourceExhaustedError: OOM when allocating tensor with shape[{'9' * 5_000}]", None, None, None),
        ("MIOpen(HIP): Error [Allocate] Memory not available to allocate buffer: 3221225472", None, None, 3 * GIB),
        ("InternalError: GPU memory (3221225472 bytes) could not be allocated", None, None, 3 * GIB),
    ],
)  # fmt: skip
def test_what_was_asked_for_is_read_in_every_form(
    text: str, shape: tuple[int, ...] | None, dtype: str | None, size: int | None
) -> None:
    found = classify(text)
    assert (found.tensor_shape, found.dtype, found.bytes_requested) == (shape, dtype, size)
    assert advice(found)


def test_the_layer_that_keras_called_is_that_of_an_op_without_a_path() -> None:
    found = classify(
        "ResourceExhaustedError: Exception encountered when calling layer 'head' (type Dense).\n\n"
        f"OOM when allocating tensor with shape[64,50000] and type float on {GPU} by allocator GPU_0_bfc [Op:MatMul]\n\n"
        "Call arguments received by layer 'head' (type Dense):\n"
    )
    assert (found.op, found.layer) == ("MatMul", "head")


@pytest.mark.parametrize(
    "text",
    [
        "RESOURCE_EXHAUSTED: Failed to allocate request for 1.00GiB (1073741824B) on device ordinal 2",
        "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 2; 11.00 GiB total capacity; 8.00 GiB already allocated)",
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 2 has a total capacity of 11.00 GiB",
    ],
)
def test_a_card_that_is_named_by_its_number_is_a_device(text: str) -> None:
    assert classify(text).device == "GPU:2"


BAR = "\r 12/900 [>.............................] - ETA: 9:12 - loss: 0.2 - mean_absolute_error: 0.3"


OWN_FAILURES = [text for text in (*DEVICE, *HOST) if "went on" not in text.name]


def seen(found: Diagnosis) -> Diagnosis:
    return dataclasses.replace(found, line="", line_number=None)


@settings(max_examples=40)
@given(text=st.sampled_from(OWN_FAILURES), ends=st.sampled_from(["\r\n", "\n\n", "\r"]), before=st.integers(0, 3))
def test_line_ends_and_bars_before_a_failure_change_nothing(text: Text, ends: str, before: int) -> None:
    noisy = BAR * before + "\n" + text.text.replace("\r\n", "\n").replace("\n", ends)
    assert seen(classify(noisy)) == seen(classify(text.text))


@settings(max_examples=40)
@given(text=st.sampled_from(ALL), colour=st.sampled_from(["\x1b[31m", "\x1b[1;38;5;9m", "\x1b]0;title\x07", "\x1b[2K"]))
def test_colours_change_nothing(text: Text, colour: str) -> None:
    coloured = "\n".join(f"{colour}{line}\x1b[0m" for line in text.text.splitlines())
    assert classify(coloured).kind == text.kind


def test_a_colour_within_a_word_hides_nothing() -> None:
    plain = DEVICE[0].text
    coloured = "".join(f"{letter}\x1b[3{index % 8}m" for index, letter in enumerate(plain))
    assert seen(classify(coloured)) == seen(classify(plain))


@pytest.mark.parametrize(
    "line",
    [
        "2024-01-02 03:04:05,6 ERROR loader: could not decode /data/{word}/{word}.jpg: {word}",
        "ValueError: {word} {word} is no {word}",
        "[{word}] free memory is low, {word} allocated",
        "Traceback (most recent call last):\n  File \"{word}.py\", line 1\n    {word}()\nKeyError: '{word}'",
        "{word} {word} {word}",
    ],
)
def test_of_lines_that_differ_only_some_are_read_and_the_last_always(line: str) -> None:
    random = Random(7)
    letters = string.ascii_lowercase
    lines = [
        line.replace("{word}", "".join(random.choices(letters, k=9)), 1).replace(
            "{word}", "".join(random.choices(letters, k=9))
        )
        for _ in range(60_000)
    ]
    text = "\n".join([*lines, DEVICE[0].text]).encode()
    blocks = [text[at : at + 2**20] for at in range(0, len(text), 2**20)]
    read = [found for found in telling_lines(blocks) if found.text]
    assert len(read) < 1_000
    assert read[-1].text == DEVICE[0].text
    assert classify(text[-(2**20) :].decode()).kind == "device_oom"


@settings(max_examples=40)
@given(text=st.sampled_from(ALL), size=st.integers(1, 97))
def test_the_size_of_blocks_changes_nothing(text: Text, size: int) -> None:
    data = text.text.encode()
    assert diagnose(data[at : at + size] for at in range(0, len(data), size)) == classify(text.text)


@settings(max_examples=40)
@given(text=st.text(max_size=300), tail=st.sampled_from(["", *(text.text for text in ALL)]))
def test_no_text_is_too_strange_to_be_read(text: str, tail: str) -> None:
    assert classify(text + tail).kind in ("device_oom", "host_oom", "not_oom")


@pytest.mark.parametrize("level", ["INFO: ", "WARNING ", "[DEBUG] "])
def test_a_line_may_have_any_number_of_levels_before_it(level: str) -> None:
    assert classify(f"{level * 2_000}{DEVICE[0].text}\n{DEVICE[0].text}").kind == "device_oom"


@settings(max_examples=40)
@given(data=st.binary(max_size=300))
def test_no_bytes_are_too_strange_to_be_read(data: bytes) -> None:
    assert diagnose([data, DEVICE[0].text.encode()]).kind in ("device_oom", "host_oom", "not_oom")
