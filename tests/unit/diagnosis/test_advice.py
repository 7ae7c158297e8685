"""What a diagnosis advises."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
import yaml

from oomtune.diagnosis import Cause, Diagnosis, classify
from oomtune.diagnosis.remedies import remedies
from oomtune.diagnosis.shapes import Role, role_of
from oomtune.spec import load_spec
from tests.support.crashes import DUMP, GPU, advice, oom
from tests.support.failure_texts import HOST
from tests.support.specs import small_spec


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


def test_a_weight_that_is_made_is_as_large_with_any_batch_and_precision() -> None:
    made = advice(oom([250000, 4096], "embed/embeddings/Initializer/random_uniform"))
    assert "likely a weight" in made[0]
    assert not any("lower the batch" in line or "precision" in line for line in made)
    # When gradients are made, activations of the batch fill the rest.
    gradient = advice(oom([4096, 4096], "gradient_tape/dense/MatMul/MatMul_1"))
    assert any("lower the batch" in line for line in gradient)


def test_one_large_tensor_on_the_host_is_spoken_of_before_what_feeds_it() -> None:
    cpu = GPU.replace("GPU", "CPU")
    product = advice(
        classify(
            f"OOM when allocating tensor with shape[40000,50000] and type float on {cpu} by allocator cpu [Op:MatMul]"
        )
    )
    assert product[0].startswith("[40000, 50000] is one tensor of 7.5 GiB: make it smaller, or compute it in parts")
    assert "tf.split" in product[0]
    assert "shuffle" in product[1]
    fed = f"OOM when allocating tensor with shape[40000,50000] and type float on {cpu} by allocator cpu [Op:IteratorGetNext]"
    assert not any("one tensor" in line for line in advice(classify(fed)))


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
