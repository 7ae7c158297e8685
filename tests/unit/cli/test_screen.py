"""The live view, drawn at any moment of a probe."""

from __future__ import annotations

import io

from rich.console import Console

from oomtune.cli.screen import LiveScreen
from oomtune.domain import Aim
from oomtune.search import time_ahead_s
from tests.support.finished import CARD, finished, probe_spec


def test_it_is_drawn_while_a_trial_runs_also_one_of_a_bucket() -> None:
    result = finished(probe_spec(with_data=True, every_lane=False))
    begun = next(at for at, record in enumerate(result.records) if record.trial.aim is Aim.BUCKETS)
    console = Console(file=io.StringIO(), force_terminal=True, width=160, height=60)
    with LiveScreen(console) as screen:
        screen.probe_started(result.spec, CARD, result.budget, 0)
        for at in (0, begun, begun + 1, len(result.records) - 1):
            if at:
                screen.trial_ended(result.records[at - 1], result.records[:at])
            trial = result.records[at].trial
            screen.trial_started(trial, at + 1)
            with console.capture() as drawn:
                console.print(screen.live.get_renderable())
            assert str(trial.candidate) in drawn.get()


def test_what_remains_counts_the_trials_of_buckets_too() -> None:
    result = finished(probe_spec(with_data=True, every_lane=False))
    answered = next(at for at, record in enumerate(result.records) if record.trial.aim is Aim.BUCKETS)
    left_s = sum(record.outcome.duration_s for record in result.records[answered:])
    ahead_s = time_ahead_s(result.spec.space, result.budget, result.records[:answered])
    assert ahead_s is not None
    assert left_s / 2 <= ahead_s <= left_s * 2
