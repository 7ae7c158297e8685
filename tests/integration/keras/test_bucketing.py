"""Bucketed batches in a training script."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from oomtune.domain import BucketTurns, Candidate, Purpose
from oomtune.errors import TrialCrashed, UsageProblem
from oomtune.keras import bucketed
from oomtune.storage.tuned import Evidence, TunedConfig
from oomtune.worker.build import model
from tests.support.specs import small_work_order


def tuned(**entries: Any) -> TunedConfig:
    return TunedConfig(
        batch_size=2,
        sequence_length=8,
        precision="float32",
        remat="none",
        gradient_accumulation_steps=1,
        effective_batch_size=2,
        evidence=Evidence(confirmed=True, device_kind="cpu", memory_limit_bytes=1),
        **entries,
    )


BUCKETS = tuned(bucket_boundaries=(3, 8), bucket_batch_sizes=(3, 2))


def shapes(dataset: tf.data.Dataset) -> list[tuple[int, ...]]:
    return sorted(tuple(inputs.shape) for inputs, _ in dataset)


def samples(lengths: list[int]) -> tf.data.Dataset:
    def each() -> Any:
        for length in lengths:
            yield np.arange(1, length + 1, dtype="int32"), np.int32(0)

    return tf.data.Dataset.from_generator(
        each, output_signature=(tf.TensorSpec([None], tf.int32), tf.TensorSpec([], tf.int32))
    )


def test_samples_are_padded_to_the_end_of_their_bucket_and_cut_to_the_last() -> None:
    batches = bucketed(samples([1, 2, 3, 4, 8, 20]), BUCKETS)
    assert shapes(batches) == [(1, 8), (2, 8), (3, 3)]


def test_padding_at_the_end_of_tokens_does_not_count_as_length() -> None:
    rows = np.zeros((4, 20), "int32")
    for row, length in enumerate((1, 3, 2, 20)):
        rows[row, :length] = 7
    targets = np.arange(4)
    batches = bucketed(tf.data.Dataset.from_tensor_slices((rows, targets)), BUCKETS)
    assert shapes(batches) == [(1, 8), (3, 3)]


@pytest.mark.parametrize("open_length", [True, False])
@pytest.mark.parametrize(("length", "wanted"), [(None, (2, 8)), (lambda inputs, tags: 3, (3, 3))])
def test_only_parts_along_the_sequence_are_cut_and_length_can_be_a_function(
    open_length: bool, length: Any, wanted: Any
) -> None:
    def opened(inputs: Any, tags: Any) -> Any:
        steps = tf.random.uniform([], 20, 21, tf.int32)  # always 20, but the graph does not know
        return {**inputs, "words": inputs["words"][:steps]}, tags[:steps]

    parts = ({"about": tf.zeros([3, 2]), "words": tf.ones([3, 20], tf.int32)}, tf.ones([3, 20]))
    dataset = tf.data.Dataset.from_tensor_slices(parts)
    inputs, tags = next(iter(bucketed(dataset.map(opened) if open_length else dataset, BUCKETS, length=length)))
    assert inputs["about"].shape[1:] == (2,)
    assert (inputs["words"].shape, tags.shape) == (wanted, wanted)


def test_a_config_without_buckets_is_refused() -> None:
    with pytest.raises(UsageProblem, match="no buckets"):
        bucketed(samples([1]), tuned())


WORDS = {"shape": ["sequence_length"], "dtype": "int32"}
PAIR = [
    {"Input": {**WORDS, "name": "question"}},
    {"Input": {**WORDS, "name": "answer"}},
    {"Input": {"shape": [3], "name": "about"}},
    {"Embedding": {"input_dim": 10, "output_dim": 3, "inbound": "question", "name": "asked"}},
    {"Embedding": {"input_dim": 10, "output_dim": 3, "inbound": "answer", "name": "said"}},
    {"Attention": {"inbound": ["asked", "said"]}},
    {"GlobalAveragePooling1D": {"name": "read"}},
    {"Add": {"inbound": ["read", "about"]}},
]


def test_a_model_with_several_inputs_is_rebuilt_for_any_length() -> None:
    lane = Candidate(batch_size=2, sequence_length=8).lane
    trial = BucketTurns(purpose=Purpose.SEARCH, lane=lane, buckets=((4, 2), (8, 2)))
    order = small_work_order(trial, model={"layers": PAIR}, search__sequence_length=[8])
    opened = model.build(order, trial.candidate, any_length=True)
    assert {tensor.name: tensor.shape[1] for tensor in opened.inputs} == {"question": None, "answer": None, "about": 3}
    fixed = [{"Input": WORDS}, {"Embedding": {"input_dim": 10, "output_dim": 2}}, "Flatten", {"Dense": {"units": 1}}]
    order = small_work_order(trial, model={"layers": fixed}, search__sequence_length=[8])
    with pytest.raises(TrialCrashed, match="the model only takes 8 steps per sample:"):
        model.build(order, trial.candidate, any_length=True)
