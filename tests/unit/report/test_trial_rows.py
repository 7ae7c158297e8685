"""Trials as rows of a table, and as lines of text."""

from __future__ import annotations

from oomtune.domain import Failed, Search, TrialRecord
from oomtune.report.terminal import trial_line
from oomtune.report.trial_rows import trial_row
from tests.support.sessions import EXACT_SPEC, linear_device, probe


def test_a_trial_over_the_headroom_is_not_called_out_of_memory() -> None:
    device = linear_device(headroom=0.1)
    lane = EXACT_SPEC.space.lanes()[0]
    outcome = device.run(Search(candidate=lane.at(170)))
    row = trial_row(TrialRecord(number=1, trial=device.ran[0], outcome=outcome), device.budget)
    assert (row.ended, row.run.fits, row.share) == ("over the headroom", False, 0.95)


def test_the_row_of_a_climb_has_the_sizes_that_fitted_and_the_one_that_did_not() -> None:
    device = linear_device(headroom=0.1)
    climb = probe(device, device.budget).records[0]
    row = trial_row(climb, device.budget)
    assert isinstance(climb.outcome, Failed)
    last = climb.outcome.points[-1].batch_size
    assert row.configuration == f"batch 1 to {last}, float32"
    assert row.ended == f"{climb.outcome.batch_size}: over the headroom"
    assert (row.run.fits, row.share) == (True, (100 + 5 * last) / 1_000)
    line = trial_line(climb, device.budget)
    assert f"batch 1 to {last}, float32: fits, {row.memory} (" in line
    assert f", then {climb.outcome.batch_size}: over the headroom, " in line
