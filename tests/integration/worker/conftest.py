"""Fixtures that run trials on one shared worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oomtune.domain import Budget, Candidate, Confirm, Outcome
from oomtune.trials.local import ForkRunner
from oomtune.trials.worker_host import WorkerHost
from tests.support import leaky_models
from tests.support.leaky_models import RunConfirm
from tests.support.specs import CPU, small_probe_spec


@pytest.fixture(scope="session")
def host() -> Iterator[WorkerHost]:
    running = WorkerHost("fork")
    yield running
    running.close()


@pytest.fixture(scope="session")
def leaky_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the leaky models."""
    folder = tmp_path_factory.mktemp("leaks")
    (folder / leaky_models.FILE_NAME).write_text(leaky_models.MODELS)
    return folder


@pytest.fixture
def confirm(host: WorkerHost, leaky_folder: Path) -> RunConfirm:
    """Return a function that runs a confirm trial of 15 steps; models under `Model.fit` run eagerly."""

    def run(model: dict[str, Any], **overrides: Any) -> Outcome:
        training = {} if model.keys() & {"train_step", "script"} else {"training__run_eagerly": True}
        spec = small_probe_spec(leaky_folder, **{**training, "trial__confirm_steps": 15, "model": model, **overrides})
        budget = Budget(limit_bytes=spec.device.memory_limit_bytes or 0)
        runner = ForkRunner(spec=spec, device=CPU, budget=budget, notice=print, host=host)
        return runner.run(Confirm(candidate=Candidate(batch_size=8)))

    return run
