"""Do the work of one trial with Keras' `fit` and nothing around it, in a process that has imported TensorFlow.

Reads a work order from the given file and prints the seconds from building the model to the end of its steps.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import tensorflow  # noqa: F401
from pydantic import TypeAdapter

from oomtune.domain import WorkOrder
from oomtune.worker.build import model
from oomtune.worker.data import trial_batch
from oomtune.worker.process import device


def main(path: str) -> None:
    order = TypeAdapter(WorkOrder).validate_json(Path(path).read_bytes())
    candidate, steps = order.trial.candidate, order.settings.warmup_steps + order.settings.steps
    began = time.perf_counter()
    device.set_up(order)
    network = model.build(order, candidate)
    network.fit(trial_batch.pipeline(order, candidate), steps_per_epoch=steps, epochs=1, verbose=0)
    print(time.perf_counter() - began)


if __name__ == "__main__":
    main(sys.argv[1])
