"""What a person sees while trials run: the live view at any moment, and the lines of an explanation."""

from __future__ import annotations

import dataclasses
import io

import pytest
from rich.console import Console

from oomtune.cli.screen import ExplainLines, LiveScreen
from oomtune.domain import Aim, Fitted, Outcome, Point, Stage
from oomtune.search import time_ahead_s
from tests.support.finished import CARD, finished, probe_spec
from tests.support.outcomes import failed

MIB = 1024**2


def test_the_live_view_shows_the_running_trial_also_one_of_a_bucket() -> None:
    result = finished(probe_spec(with_data=True, every_lane=False))
    first_of_buckets = next(at for at, record in enumerate(result.records) if record.trial.aim is Aim.BUCKETS)
    console = Console(file=io.StringIO(), force_terminal=True, width=160, height=60)
    with LiveScreen(console) as screen:
        screen.probe_started(result.spec, CARD, result.budget, 0)
        for at in (0, first_of_buckets, first_of_buckets + 1, len(result.records) - 1):
            if at:
                screen.trial_ended(result.records[at - 1], result.records[:at])
            trial = result.records[at].trial
            screen.trial_started(trial, at + 1)
            with console.capture() as drawn:
                console.print(screen.live.get_renderable())
            assert str(trial.candidate) in drawn.get()


def test_the_remaining_time_includes_the_trials_of_buckets() -> None:
    result = finished(probe_spec(with_data=True, every_lane=False))
    first_of_buckets = next(at for at, record in enumerate(result.records) if record.trial.aim is Aim.BUCKETS)
    left_s = sum(record.outcome.duration_s for record in result.records[first_of_buckets:])
    ahead_s = time_ahead_s(result.spec.space, result.budget, result.records[:first_of_buckets])
    assert ahead_s is not None
    assert left_s / 2 <= ahead_s <= left_s * 2


POINTS = (Point(batch_size=9, peak_bytes=30 * MIB, step_ms=1.0),)
OUT_OF_MEMORY = failed(peak_bytes=70 * MIB, duration_s=2.0)


@pytest.mark.parametrize(
    ("outcome", "line"),
    [
        (OUT_OF_MEMORY, "trial 12: XLA on: out of memory, 70.0 MiB, 2 s"),
        (
            dataclasses.replace(OUT_OF_MEMORY, stage=Stage.DONE, peak_bytes=100 * MIB),
            "trial 12: XLA on: over the headroom, 100 MiB, 2 s",
        ),
        (dataclasses.replace(OUT_OF_MEMORY, points=POINTS, batch_size=10), "trial 12: XLA on: 30.0 MiB, 2 s"),
        (
            Fitted(peak_bytes=20 * MIB, further=POINTS, duration_s=2.0),
            "trial 12: XLA on: 20.0 MiB, batch 9 fits too, 2 s",
        ),
    ],
)
def test_a_measurement_is_a_line_that_says_how_it_ended(outcome: Outcome, line: str) -> None:
    text = io.StringIO()
    ExplainLines(Console(file=text, width=200)).measured("XLA on", outcome, 12)
    assert text.getvalue().strip() == line
