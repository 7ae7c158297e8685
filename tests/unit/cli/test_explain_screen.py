"""What a person reads of each trial while an explanation is made."""

from __future__ import annotations

import dataclasses
import io

from rich.console import Console

from oomtune.cli.explain_screen import ExplainLines
from oomtune.domain import Fitted, Outcome, Point, Stage
from tests.support.outcomes import failed

MIB = 1024**2


def told(outcome: Outcome) -> str:
    text = io.StringIO()
    ExplainLines(Console(file=text, width=200)).measured("XLA on", outcome, 12)
    return text.getvalue().strip()


def test_a_trial_that_ran_out_of_memory_is_not_told_as_one_that_fits() -> None:
    points = (Point(batch_size=9, peak_bytes=30 * MIB, step_ms=1.0),)
    out = failed(peak_bytes=70 * MIB, duration_s=2.0)
    assert told(out) == "trial 12: XLA on: out of memory, 70.0 MiB, 2 s"
    over = dataclasses.replace(out, stage=Stage.DONE, peak_bytes=100 * MIB)
    assert told(over) == "trial 12: XLA on: over the headroom, 100 MiB, 2 s"
    climbed = dataclasses.replace(out, points=points, batch_size=10)
    assert told(climbed) == "trial 12: XLA on: 30.0 MiB, 2 s"
    fits = Fitted(peak_bytes=20 * MIB, further=points, duration_s=2.0)
    assert told(fits) == "trial 12: XLA on: 20.0 MiB, batch 9 fits too, 2 s"
