"""Every model of `keras.applications`, by its name."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import keras
import pytest

from oomtune.domain import Candidate, Search
from oomtune.spec.model import application_names
from oomtune.worker.build import model
from tests.support.specs import small_work_order

# The smallest model of each family, and the smallest image that it takes.
FAMILIES = {
    "ConvNeXtTiny": 32, "DenseNet121": 32, "EfficientNetB0": 32, "EfficientNetV2B0": 32, "InceptionResNetV2": 75,
    "InceptionV3": 75, "MobileNet": 32, "MobileNetV2": 32, "MobileNetV3Small": 32, "NASNetMobile": 32, "ResNet50": 32,
    "ResNet50V2": 32, "VGG16": 32, "VGG19": 32, "Xception": 71,
}  # fmt: skip


def test_a_spec_accepts_the_names_that_keras_has_and_no_others() -> None:
    made = {name for name, maker in vars(keras.applications).items() if inspect.isfunction(maker)}
    assert application_names() == made
    families = {sys.modules[getattr(keras.applications, name).__module__] for name in made}
    assert families == {sys.modules[getattr(keras.applications, name).__module__] for name in FAMILIES}


@pytest.mark.parametrize("name", FAMILIES)
def test_each_family_is_built_as_asked_for_and_in_half_precision(tmp_path: Path, name: str) -> None:
    trial = Search(candidate=Candidate(batch_size=2, precision="mixed_bfloat16"))
    side = FAMILIES[name]
    entry = {"name": name, "args": {"weights": None, "classes": 7, "input_shape": [side, side, 3]}}
    try:
        built = model.build(small_work_order(trial, tmp_path, model={"application": entry}), trial.candidate)
    finally:
        keras.config.set_dtype_policy("float32")
    assert (built.input_shape, built.output_shape) == ((None, side, side, 3), (None, 7))
    computed = [layer for layer in built._flatten_layers() if not isinstance(layer, keras.layers.InputLayer)]
    assert {layer.compute_dtype for layer in computed} == {"bfloat16"}
    assert {keras.backend.standardize_dtype(weight.dtype) for weight in built.trainable_weights} == {"float32"}
    assert built.output.dtype == "bfloat16"
