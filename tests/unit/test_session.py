"""The loop, with a fake device: what it records, when it stops, and what it says of each end."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable, Sequence

import pytest
from rich.console import Console

from oomtune.diagnosis.nothing_fits import advice_for
from oomtune.domain import (
    Budget,
    Device,
    Failed,
    Kind,
    Outcome,
    ProbeResult,
    ProbeSpec,
    Search,
    Stage,
    Trial,
    TrialError,
    TrialRecord,
    Verdict,
)
from oomtune.domain.observer import SilentObserver
from oomtune.report.answer import answer_rows, paste_lines
from oomtune.report.json_document import probe_document
from oomtune.report.terminal import print_answer, trial_line
from oomtune.report.trial_rows import trial_row
from oomtune.session import Limits, run_session
from oomtune.trials.fake import FakeDevice
from oomtune.trials.runner import Runner
from tests.support.outcomes import failed
from tests.support.specs import CPU, small_probe_spec

SPEC = small_probe_spec(search__batch_size={"min": 1, "max": 1024}, search__resolution=0.0)
NO_LIMITS = Limits()


class Notes(SilentObserver):
    def __init__(self) -> None:
        self.started: list[int] = []
        self.ended: list[int] = []

    def trial_started(self, trial: Trial, number: int) -> None:
        self.started.append(number)

    def trial_ended(self, record: TrialRecord, history: Sequence[TrialRecord]) -> None:
        assert history[-1] == record
        self.ended.append(record.number)


def fake(limit_bytes: int = 1_000) -> FakeDevice:
    return FakeDevice(limit_bytes=limit_bytes, law=lambda candidate: 100 + 5 * candidate.batch_size)


def probe(
    runner: Runner,
    budget: Budget,
    *,
    spec: ProbeSpec = SPEC,
    device: Device = CPU,
    earlier: Sequence[TrialRecord] = (),
    limits: Limits = NO_LIMITS,
    clock: float | Callable[[], float] = 0.0,
    kept: list[TrialRecord] | None = None,
    observer: SilentObserver | None = None,
) -> ProbeResult:
    return run_session(
        spec,
        device,
        budget,
        runner=runner,
        ledger=kept if kept is not None else [],
        earlier=earlier,
        observer=observer or SilentObserver(),
        limits=limits,
        clock=clock if callable(clock) else lambda: clock,
    )


def test_the_winner_is_found_confirmed_and_every_trial_recorded_and_told() -> None:
    kept: list[TrialRecord] = []
    device, notes = fake(), Notes()
    result = probe(device, device.budget, kept=kept, observer=notes)
    assert result.verdict is Verdict.TUNED
    assert result.best is not None
    assert result.best.candidate.batch_size == 180
    assert result.best.confirmed_by in kept
    assert list(result.records) == kept
    assert notes.started == notes.ended == [record.number for record in kept] == list(range(1, len(kept) + 1))


@pytest.mark.parametrize("count", range(6))
def test_a_session_cut_anywhere_goes_on_to_the_same_answer_and_runs_nothing_twice(count: int) -> None:
    whole = probe(fake(), fake().budget)
    device = fake()
    rest = probe(device, device.budget, earlier=whole.records[:count])
    assert rest.records == whole.records
    assert device.ran == [record.trial for record in whole.records[count:]]
    assert rest.new_trials == len(whole.records[count:])


def test_limits_stop_it_in_order_with_the_best_so_far() -> None:
    device = fake()
    stopped = probe(device, device.budget, limits=Limits(max_trials=2))
    assert (stopped.verdict, len(stopped.records)) == (Verdict.STOPPED, 2)
    assert stopped.problem is not None
    assert "--max-trials" in stopped.problem.message
    late = probe(fake(), device.budget, limits=Limits(deadline=5.0), clock=5.0)
    assert (late.verdict, late.records, late.best) == (Verdict.STOPPED, (), None)
    assert late.problem is not None
    assert "--time-limit" in late.problem.message


def test_a_deadline_in_the_middle_keeps_the_best_so_far() -> None:
    """Each trial takes a second here."""
    device = fake()
    result = probe(device, device.budget, limits=Limits(deadline=1.5), clock=lambda: float(len(device.ran)), spec=SPEC)
    assert result.verdict is Verdict.STOPPED
    assert len(result.records) == 2
    assert result.best is not None
    assert result.problem is not None
    assert "--time-limit after 2 more trials" in result.problem.message


def test_a_limit_reached_just_when_the_answer_is_known_is_no_stop() -> None:
    needed = len(probe(fake(), fake().budget).records)
    assert probe(fake(), fake().budget, limits=Limits(max_trials=needed)).verdict is Verdict.TUNED


def test_when_nothing_fits_the_verdict_says_so() -> None:
    device = fake(limit_bytes=50)
    result = probe(device, device.budget)
    assert (result.verdict, result.best) == (Verdict.NOTHING_FITS, None)


class Crashing(FakeDevice):
    def run(self, trial: Trial, *, within_s: float | None = None) -> Outcome:
        super().run(trial, within_s=within_s)
        error = TrialError(code="raised", message="ValueError: no", traceback="Traceback: theirs")
        return failed(Kind.CRASH, stage=Stage.BUILD, error=error)


def test_a_crash_stops_it_at_once_with_the_users_own_traceback() -> None:
    device = Crashing(limit_bytes=1_000, law=lambda candidate: 1)
    result = probe(device, device.budget)
    assert (result.verdict, len(device.ran)) == (Verdict.FAILED, 1)
    assert result.problem is not None
    assert result.problem.traceback == "Traceback: theirs"


class Interrupted(FakeDevice):
    def run(self, trial: Trial, *, within_s: float | None = None) -> Outcome:
        if len(self.ran) == 2:
            raise KeyboardInterrupt
        return super().run(trial, within_s=within_s)


def test_an_interruption_keeps_what_was_known() -> None:
    kept: list[TrialRecord] = []
    device = Interrupted(limit_bytes=1_000, law=lambda candidate: 100 + 5 * candidate.batch_size)
    result = probe(device, device.budget, kept=kept)
    assert (result.verdict, len(kept)) == (Verdict.INTERRUPTED, 2)
    assert probe(fake(), device.budget, earlier=kept).verdict is Verdict.TUNED


GIVEN_UP = "no buckets: by turns they did not stay within the budget with"
SMALLEST = "613 of 24, 613 of 40, 613 of 96, 229 of 256"


class Noticing(SilentObserver):
    def __init__(self) -> None:
        self.notices: list[str] = []

    def notice(self, text: str) -> None:
        self.notices.append(text)


@pytest.mark.parametrize(
    ("turns_need", "said"),
    [
        (1.0, []),
        (50.0, [f"{GIVEN_UP} 1024 of 24, 1024 of 40, 1024 of 96, 383 of 256 down to {SMALLEST}"]),
        (
            2.0,
            [
                f"{GIVEN_UP} 1024 of 24, 1024 of 40, 1024 of 96, 383 of 256 down to {SMALLEST}; "
                "1021 of 24, 612 of 40, 255 of 96, 95 of 256 fitted, too small to be worth it"
            ],
        ),
        (None, ["no buckets: the model takes one length only"]),
    ],
)
def test_buckets_that_are_given_up_are_said_so_once(turns_need: float | None, said: list[str]) -> None:
    space = dataclasses.replace(
        SPEC.space,
        sequence_lengths=(256,),
        length_counts=((10, 500), (20, 800), (40, 400), (90, 100), (256, 5)),
        most_buckets=4,
        resolution=0.02,
    )
    device = FakeDevice(
        limit_bytes=10_100_000,
        law=lambda candidate: 100_000 + 100 * candidate.batch_size * (candidate.sequence_length or 1),
        turns_need=turns_need,
    )
    observer = Noticing()
    result = probe(device, device.budget, spec=dataclasses.replace(SPEC, space=space), observer=observer)
    assert result.verdict is Verdict.TUNED
    assert (result.buckets is None) == bool(said)
    assert observer.notices == said


def test_a_model_that_comes_compiled_is_not_to_be_compiled_again() -> None:
    device = fake()
    result = dataclasses.replace(probe(device, device.budget), tuned_path="m.tuned.yaml")
    assert any(line.startswith("model.compile(") for line in paste_lines(result))
    compiled = dataclasses.replace(SPEC, training=dataclasses.replace(SPEC.training, loss=None))
    lines = paste_lines(dataclasses.replace(result, spec=compiled))
    assert not any(line.startswith("model.compile(") for line in lines)
    assert any("keeps its own optimizer" in line for line in lines)


def test_a_number_is_the_same_in_the_table_and_in_the_document() -> None:
    device = fake()
    result = probe(device, device.budget)
    rows, document = dict(answer_rows(result)), probe_document(result)
    assert rows["batch size"] == str(document["best"]["batch_size"]) == "180"
    assert rows["trials"].startswith(str(len(document["trials"])))
    assert "20 steps" in rows["confirmed"]
    assert rows["next larger"] == "batch 181: does not fit"
    assert document["confirmed"] is True


def test_the_top_of_the_range_is_said_to_be_the_top_and_not_the_edge() -> None:
    device = fake(limit_bytes=10**9)
    rows = dict(answer_rows(probe(device, device.budget)))
    assert rows["batch size"] == "1024"
    assert "largest batch that search.batch_size allows" in rows["next larger"]


def test_a_trial_over_the_headroom_is_not_called_out_of_memory() -> None:
    device = FakeDevice(limit_bytes=1_000, law=lambda candidate: 100 + 5 * candidate.batch_size, headroom=0.1)
    lane = SPEC.space.lanes()[0]
    outcome = device.run(Search(candidate=lane.at(170)))
    row = trial_row(TrialRecord(number=1, trial=device.ran[0], outcome=outcome), device.budget)
    assert (row.ended, row.run.fits, row.share) == ("over the headroom", False, 0.95)


def test_a_climb_shows_the_sizes_that_fitted_and_the_one_that_did_not() -> None:
    device = FakeDevice(limit_bytes=1_000, law=lambda candidate: 100 + 5 * candidate.batch_size, headroom=0.1)
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


def test_without_a_file_there_is_nothing_to_paste() -> None:
    device = fake()
    assert paste_lines(probe(device, device.budget)) == []


def test_what_is_to_be_pasted_is_whole_on_a_narrow_terminal() -> None:
    device, text = fake(), io.StringIO()
    path = f"{'folder/' * 20}model.tuned.yaml"
    result = dataclasses.replace(probe(device, device.budget), tuned_path=path)
    print_answer(Console(file=text, width=60), result)
    shown = text.getvalue().splitlines()
    assert f"tuned config: {path}" in shown
    assert [f"  {line}" for line in paste_lines(result)] == shown[-len(paste_lines(result)) :]


def test_the_advice_is_three_things_that_the_spec_has_not_done_yet() -> None:
    budget = Budget(limit_bytes=64 * 1024**2)
    smallest = SPEC.space.lanes()[0].at(1)
    advice = advice_for(SPEC, budget, smallest, 80 * 1024**2)
    assert len(advice) == 3
    assert "--memory-limit 110MiB" in advice[0]
    assert "checkpoint" in advice[1]
    assert "half precision" in advice[2]
    assert not any("optimizer" in line for line in advice)  # it has plain SGD already
