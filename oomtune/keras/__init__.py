"""Apply a tuned config in a training script. Trials train through the same code.

    import oomtune, oomtune.keras

    tuned = oomtune.load_tuned("model.tuned.yaml")
    oomtune.keras.setup(tuned)                                 # before any TensorFlow op
    model = build_model(tuned.sequence_length)
    model.compile(**oomtune.keras.compile_args(tuned))
    oomtune.keras.rematerialise(model, tuned)                  # does nothing if the answer needs no rematerialisation
    model.fit(oomtune.keras.batch(train, tuned), validation_data=oomtune.keras.batch(valid, tuned))

Importing this package does not import TensorFlow, because `setup` must run before TensorFlow starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomtune.keras.batching import batch, bucketed
from oomtune.keras.compiling import compile_args, optimizer
from oomtune.keras.own_loop import step
from oomtune.keras.setup import set_policy, setup
from oomtune.storage.tuned import TunedConfig

if TYPE_CHECKING:
    import keras

__all__ = ["batch", "bucketed", "compile_args", "optimizer", "rematerialise", "set_policy", "setup", "step"]


def rematerialise(model: keras.Model, tuned: TunedConfig) -> list[str]:
    """Make the model recompute the same parts in the backward pass as in the trials.

    The model keeps its weights, its compile state and its saved format. The returned list holds the names of the
    recomputed parts; it fills up when the model first trains.
    """
    from oomtune.keras import remat

    return remat.rematerialise(model, tuned.remat).names
