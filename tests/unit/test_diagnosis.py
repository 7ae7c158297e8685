"""A diagnosis and its advice: the facts, how full it was, the layer, what to do, and noise that changes nothing."""

from __future__ import annotations

import dataclasses
import importlib
import re
import string
from pathlib import Path
from random import Random

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from oomtune.diagnosis import Cause, Diagnosis, classify, diagnose
from oomtune.diagnosis.lines import telling_lines
from oomtune.diagnosis.names import OPTIMIZER, layer_of, size_of
from oomtune.diagnosis.remedies import remedies
from oomtune.diagnosis.shapes import Role, role_of
from oomtune.domain import Budget, TrialError
from oomtune.report.advice import what_to_try
from oomtune.spec import load_spec
from tests.specs import small_probe_spec, small_spec
from tests.unit.failure_texts import ALL, DEVICE, HOST, Text
from tests.unit.harder_texts import HARDER

GIB = 1024**3
GPU = "/job:localhost/replica:0/task:0/device:GPU:0"
DUMP = """\
2017-06-07 08:09:10.1: W tensorflow/core/common_runtime/bfc_allocator.cc:273] Allocator (GPU_0_bfc) ran out of memory \
trying to allocate 1.00GiB.  Current allocation summary follows.
2017-06-07 08:09:10.2: I tensorflow/core/common_runtime/bfc_allocator.cc:700] Sum Total of in-use chunks: 7.50GiB
2017-06-07 08:09:10.3: I tensorflow/core/common_runtime/bfc_allocator.cc:702] Stats:
Limit:                  8589934592
InUse:                  8053063680
MaxInUse:               8053063680
NumAllocs:                     777
"""


def oom(shape: list[int], op: str = "", dump: str = "", dtype: str = "float") -> Diagnosis:
    node = f"\n\t [[{{{{node {op}}}}}]]" if op else ""
    sizes = ",".join(map(str, shape))
    return classify(
        f"{dump}ResourceExhaustedError: OOM when allocating tensor with shape[{sizes}] and type {dtype} on {GPU} "
        f"by allocator GPU_0_bfc{node}"
    )


def advice(diagnosis: Diagnosis) -> list[str]:
    return [" | ".join((one.what, one.spec_line, one.code)) for one in remedies(diagnosis)]


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


def test_a_batch_is_lowered_to_half_or_to_what_the_figures_allow() -> None:
    first = advice(oom([64, 512, 30522]))[0]
    assert "the first dimension is 64; try 32" in first
    assert "search: {batch_size: {min: 1, max: 63}}" in first
    assert "model.fit(..., batch_size=32)" in first
    # 7.5 GiB in use and 1.5 more of 8 GiB: four in five of the batch, so 48 of 60.
    full = oom([60, 1024, 6554], dump=DUMP)
    assert "try 48, since 7.5 GiB and 1.5 GiB more were wanted of 8.0 GiB" in advice(full)[0]
    assert not any("lower the batch" in line for line in advice(oom([1, 512, 512, 64], "conv/Conv2D")))


def test_attention_is_shortened_or_checkpointed_and_pictures_are_not() -> None:
    scores = advice(oom([8, 12, 2048, 2048], "model/attention/einsum/Einsum"))
    assert "2048 × 2048 are attention scores" in scores[0]
    assert "search: {sequence_length: [512, 1024]}" in scores[0]
    assert "search: {remat: [none, full]}" in scores[1]
    assert advice(oom([8, 12, 2048, 2048])) == scores
    pictures = advice(oom([128, 3, 224, 224], "model/conv1/Conv2D"))
    assert pictures[0].startswith("lower the batch")
    assert any("smaller pictures" in line for line in pictures)


@pytest.mark.parametrize(
    ("shape", "op", "dtype", "role"),
    [
        ([8, 8, 2048, 2048], "mha/softmax/Softmax", "float", Role.ATTENTION),
        ([4, 8, 1024, 1024], "block/attention/einsum/Einsum", "float", Role.ATTENTION),
        ([8, 3, 1024, 1024], "stem/Conv2D", "float", Role.PICTURE),
        ([16384, 3072], "bert/layer_2/dense/MatMul", "float", Role.ROWS),
        ([32, 1024, 12, 64], "mha/query/add", "float", Role.BATCH),
        ([32, 512, 512], "unet/mask/mul", "float", Role.BATCH),
        ([2147483648], "rnn/CudnnRNN", "uint8", Role.WORKSPACE),
        ([3072, 768], "gradient_tape/bert/dense/MatMul/MatMul_1", "float", Role.WEIGHT),
        ([3, 3, 512, 512], "", "float", Role.WEIGHT),
        ([3, 3, 512, 512], "vgg/block5/Relu", "float", Role.PICTURE),
        ([50000, 300], "words/embeddings/Initializer/random_uniform", "float", Role.WEIGHT),
    ],
)
def test_the_op_decides_before_the_shape(shape: list[int], op: str, dtype: str, role: Role) -> None:
    assert role_of(oom(shape, op, dtype=dtype)) is role


def test_a_batch_is_named_only_where_a_dimension_can_be_one() -> None:
    assert "96 may be the batch times the heads" in advice(oom([96, 2048, 2048], "attention/Softmax"))[2]
    assert "16384 may be the batch times the length" in advice(oom([16384, 3072], "bert/dense/MatMul"))[0]
    assert "batch_size=16" in advice(oom([512, 32, 256], "lstm/TensorArrayV2Stack/TensorListStack"))[0]
    scratch = advice(oom([2147483648], "rnn/CudnnRNN", dtype="uint8"))
    assert scratch[0].startswith("lower the batch; halve it")
    assert not any("weight, which no smaller batch" in line for line in scratch)
    query = advice(oom([32, 1024, 12, 64], "mha/query/add"))
    assert "sequence_length: [256, 512]" in query[2]
    assert not any("pictures" in line for line in query)


@pytest.mark.parametrize(("batch", "smaller"), [(3, 1), (7, 3), (9, 4), (2, 1)])
def test_an_odd_batch_is_lowered_to_a_number_too(batch: int, smaller: int) -> None:
    assert f"batch_size={smaller})" in advice(oom([batch, 12, 512, 513], "block/add"))[0]


def test_every_line_for_the_spec_can_be_pasted_into_one(tmp_path: Path) -> None:
    diagnoses = [
        oom([64, 512, 1024], dump=DUMP.replace("8053063680", "4053063680")),
        oom([8, 12, 2048, 2048]),
        oom([30522, 768], "Adam/Adam/update_3/mul_1"),
    ]
    found = {remedy.spec_line: remedy for diagnosis in diagnoses for remedy in remedies(diagnosis) if remedy.key}
    assert len(found) >= 7
    for line, remedy in found.items():
        section = line.partition(":")[0]
        others = {key: value for key, value in small_spec().items() if key != section}
        # Training can't do without a loss, which comes with the line.
        pasted = f"{line[:-1]}, loss: mean_squared_error}}" if section == "training" else line
        path = tmp_path / "model.yaml"
        path.write_text(f"{yaml.safe_dump(others)}{pasted}  # or: {remedy.set_flag}\n")
        assert load_spec(path).spec


def test_weights_and_the_optimizer_are_not_cured_by_a_smaller_batch() -> None:
    slot = advice(oom([30522, 768], "Adam/Adam/update_3/mul_1"))
    assert slot[0].startswith("a lighter optimizer than Adam")
    assert "fewer rows than 30522" in slot[1]
    assert "no smaller batch makes smaller" in advice(oom([3, 3, 512, 1024]))[0]


def test_room_in_pieces_and_a_card_that_others_hold_are_told() -> None:
    roomy = DUMP.replace("8053063680", "4053063680")
    assert "TF_GPU_ALLOCATOR=cuda_malloc_async" in advice(oom([64, 1024, 1024], dump=roomy))[0]
    assert "device: {allocator: cuda_malloc_async}" in advice(oom([64, 1024, 1024], dump=roomy))[0]
    tiny = DUMP.replace("8589934592", "55115776").replace("8053063680", "55115776")
    assert "nvidia-smi" in advice(oom([64, 1024, 1024], dump=tiny))[0]
    assert (
        "nvidia-smi"
        in advice(classify("failed call to cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY: out of memory"))[0]
    )


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


def test_who_holds_the_memory_is_shown_by_the_vendor_s_own_tool() -> None:
    metal = classify(
        "Error: command buffer exited with error status.\n\tInsufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)"
    )
    assert not any("nvidia" in line or "set_memory_growth" in line for line in advice(metal))
    assert "rocm-smi" in advice(classify("hipErrorOutOfMemory: out of memory while creating a context"))[0]


def test_a_model_that_trains_on_the_cpu_is_told_of_its_batch() -> None:
    cpu = GPU.replace("GPU", "CPU")
    found = classify(
        f"OOM when allocating tensor with shape[64,512,2048] and type float on {cpu} by allocator mklcpu\n"
        "\t [[{{node dense/MatMul}}]]"
    )
    assert found.kind == "host_oom"
    assert "batch_size=32" in advice(found)[0]
    assert any("data.shuffle(" in line for line in advice(found))
    assert not any("workers=" in line for line in advice(found))


def test_the_code_that_is_advised_names_what_there_is() -> None:
    checkpoint = next(line for line in advice(oom([8, 12, 2048, 2048])) if "checkpoint" in line)
    for name in re.findall(r"oomtune\.(\w+)\.(\w+)\(", checkpoint):
        assert hasattr(importlib.import_module(f"oomtune.{name[0]}"), name[1])
    assert "oomtune.keras.rematerialise(model, oomtune.load_tuned(" in checkpoint


def test_host_memory_is_about_the_input_pipeline_and_a_full_disk_about_the_disk() -> None:
    array = advice(classify(next(text.text for text in HOST if text.name == "numpy")))
    assert "an array of 37.3 GiB is made at once" in array[0]
    assert any("data.shuffle(" in line for line in array)
    disk = classify("ResourceExhaustedError: ckpt/a.tempstate1; No space left on device")
    assert disk.cause is Cause.DISK
    assert "df -h" in advice(disk)[0]


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_has_advice(cause: Cause) -> None:
    assert remedies(Diagnosis(kind="not_oom", failed=True, cause=cause))


def test_a_probe_in_which_nothing_fits_gives_the_advice_for_what_failed() -> None:
    spec = small_probe_spec(training__optimizer="adam")
    budget, smallest = Budget(limit_bytes=64 << 20), spec.space.lanes()[0].at(1)
    plain = what_to_try(spec, budget, smallest, 80 << 20)
    assert (len(plain), "--memory-limit 110MiB" in plain[0]) == (3, True)
    of_a_slot = (
        f"OOM when allocating tensor with shape[30522,768] and type float on {GPU} by allocator GPU_0_bfc\n"
        "\t [[node Adam/Adam/update_3/mul_1]]"
    )

    def said(text: str) -> TrialError:
        return TrialError(code="device_oom", message=text)

    told = what_to_try(spec, budget, smallest, 80 << 20, said(of_a_slot))
    assert told[1].endswith("--set training.optimizer=sgd")
    assert "an optimizer's slot" in told[2]
    host = what_to_try(spec, budget, smallest, None, said("MemoryError: Unable to allocate 1.0 GiB for an array"))
    assert "an array of 1.0 GiB" in host[0]
    assert len(what_to_try(spec, budget, smallest, None, said("no words that are known"))) == 3


def test_where_memory_is_in_pieces_the_allocators_setting_comes_first() -> None:
    spec = small_probe_spec()
    error = TrialError(code="fragmentation", message="fragmentation: 30% is free", hint="set device.allocator")
    told = what_to_try(spec, Budget(limit_bytes=64 << 20), spec.space.lanes()[0].at(1), None, error)
    assert (told[0], len(told)) == ("set device.allocator", 3)


def test_a_rare_request_is_not_advised_twice_nor_what_the_spec_already_does() -> None:
    spec = small_probe_spec(search__precision=["float32", "mixed_bfloat16"])
    told = what_to_try(spec, Budget(limit_bytes=64 << 20), spec.space.lanes()[0].at(1), None)
    assert not any("half precision" in line or "optimizer" in line for line in told)
    assert len(set(told)) == len(told)


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


@settings(max_examples=40)
@given(data=st.binary(max_size=300))
def test_no_bytes_are_too_strange_to_be_read(data: bytes) -> None:
    assert diagnose([data, DEVICE[0].text.encode()]).kind in ("device_oom", "host_oom", "not_oom")
