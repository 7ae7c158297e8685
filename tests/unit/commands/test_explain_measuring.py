"""Measurements of an explanation: one peak for everything, no savings from noise, and batches that really ran."""

from __future__ import annotations

import dataclasses

import pytest

from oomtune.commands.explain.candidate import Request
from oomtune.domain import (
    Budget,
    Candidate,
    Certainty,
    Confirm,
    Explanation,
    Fitted,
    Kind,
    Outcome,
    Point,
    ProbeSpec,
    Search,
    Trial,
    TriedRemedy,
)
from oomtune.report.explanation import before_row, growth_sentences, remedy_notes, remedy_rows
from oomtune.report.json_document import explanation_document
from oomtune.search.climb import next_further
from tests.support.benches import MIB, FakeBench, Law, explained, is_dissection, law
from tests.support.outcomes import failed


def without_further(trial: Trial) -> Trial:
    return dataclasses.replace(trial, further=()) if isinstance(trial, Search | Confirm) else trial


class NoisyBench(FakeBench):
    """Adds a tenth to the peak of every other trial."""

    def run(self, what: str, spec: ProbeSpec, budget: Budget, trial: Trial) -> Outcome:
        outcome = super().run(what, spec, budget, trial)
        more = 1.1 if len(self.ran) % 2 else 1.0
        return dataclasses.replace(outcome, peak_bytes=int((outcome.peak_bytes or 0) * more))


class ShortBench(FakeBench):
    """Runs no further sizes, as for a script or when steps are slow."""

    def run(self, what: str, spec: ProbeSpec, budget: Budget, trial: Trial) -> Outcome:
        return super().run(what, spec, budget, without_further(trial))


def named(explanation: Explanation, name: str) -> TriedRemedy:
    return next(remedy for remedy in explanation.remedies if remedy.name == name)


def test_parts_and_remedies_refer_to_the_same_peak() -> None:
    bench = NoisyBench()
    explanation = explained(bench=bench)
    looked = next(index for index, (_, trial) in enumerate(bench.ran) if is_dissection(trial))
    true_bytes = (10 + explanation.candidate.batch_size) * MIB
    assert explanation.before.peak_bytes == int(true_bytes * (1.1 if looked % 2 == 0 else 1.0))
    document = explanation_document(explanation)
    assert document["memory"]["peak_bytes"] == document["before"]["peak_bytes"] == explanation.before.peak_bytes


def test_differences_between_identical_runs_are_no_savings() -> None:
    """The optimizer has no state here, so every difference is noise of at most a tenth."""

    def stateless(_: ProbeSpec, candidate: Candidate) -> int:
        return law(explained().spec, candidate)

    explanation = explained(bench=NoisyBench(stateless))
    rows = {row.name: row for row in remedy_rows(explanation)}
    assert rows["rematerialisation"].helps
    for name in ("sgd for adam", "adafactor for adam"):
        assert explanation.saved_bytes(named(explanation, name)) == 0
        assert (rows[name].saves, rows[name].helps) == ("none", False)
    assert "two equal runs" in remedy_notes(explanation)[0]


def test_a_small_change_has_to_show_twice() -> None:
    """Now and then a peak is off by a seventh."""

    class OnceOff(FakeBench):
        def run(self, what: str, spec: ProbeSpec, budget: Budget, trial: Trial) -> Outcome:
            outcome = super().run(what, spec, budget, trial)
            off = {"adafactor for adam": 1.15, "sgd for adam": 0.85}.get(what, 1.0)
            return dataclasses.replace(outcome, peak_bytes=int((outcome.peak_bytes or 0) * off))

    explanation = explained(bench=OnceOff(lambda _, at: (10 + at.batch_size) * MIB))
    assert explanation.saved_bytes(named(explanation, "adafactor for adam")) == 0
    assert explanation.saved_bytes(named(explanation, "sgd for adam")) == 0


def test_an_answer_at_its_edge_is_explained_even_if_one_run_of_it_does_not_fit() -> None:
    class OnceOver(FakeBench):
        def run(self, what: str, spec: ProbeSpec, budget: Budget, trial: Trial) -> Outcome:
            outcome = super().run(what, spec, budget, trial)
            return failed() if what == "the candidate unchanged" else outcome

    before = explained(Request(batch_size=90, sequence_length=128), OnceOver()).before
    assert (before.largest_batch_size, before.certainty) == (90, Certainty.RAN)


def test_the_fastest_run_of_the_candidate_counts() -> None:
    class OnceSlow(FakeBench):
        def run(self, what: str, spec: ProbeSpec, budget: Budget, trial: Trial) -> Outcome:
            outcome = super().run(what, spec, budget, trial)
            slow = what == "the candidate unchanged"
            return dataclasses.replace(outcome, step_ms=(outcome.step_ms or 0.0) * (2 if slow else 1))

    assert explained(bench=OnceSlow()).before.step_ms == explained().before.step_ms


def test_a_remedy_that_only_allows_larger_batches_is_offered() -> None:
    """Rematerialisation saves nothing at the candidate, but does at larger batches."""

    def late(spec: ProbeSpec, candidate: Candidate) -> int:
        return max(45 * MIB, law(spec, candidate)) if candidate.batch_size < 50 else law(spec, candidate)

    explanation = explained(Request(batch_size=34, sequence_length=128), FakeBench(late))
    row = next(row for row in remedy_rows(explanation) if row.name == "rematerialisation")
    assert (row.saves, row.helps) == ("none", True)


def test_remedies_are_sorted_by_the_batch_they_allow() -> None:
    """Accumulation needs much less at the candidate but allows fewer samples at a time."""
    copies = 8 * MIB

    def with_copies(spec: ProbeSpec, candidate: Candidate) -> int:
        return law(spec, candidate) + (copies if spec.training.effective_batch_size else 0)

    explanation = explained(bench=FakeBench(with_copies))
    names = [remedy.name for remedy in explanation.remedies]
    accumulation, half = named(explanation, "gradient accumulation"), named(explanation, "rematerialisation")
    assert accumulation.cost is not None
    assert half.cost is not None
    assert accumulation.cost.largest_batch_size < explanation.before.largest_batch_size
    assert names.index("rematerialisation") < names.index("sgd for adam") < names.index("gradient accumulation")


@pytest.mark.parametrize("bend", [40, 55, 70, 88])
def test_the_largest_batch_really_ran_even_if_the_curve_turns_steeper(bend: int) -> None:
    def bent(_: ProbeSpec, candidate: Candidate) -> int:
        return (10 + candidate.batch_size + 2 * max(0, candidate.batch_size - bend)) * MIB

    before = explained(bench=FakeBench(bent)).before
    truth = max(size for size in range(1, 100) if bent(explained().spec, Candidate(batch_size=size)) <= 100 * MIB)
    assert before.certainty is not Certainty.PREDICTED
    assert 0.95 * truth <= before.largest_batch_size <= truth


@pytest.mark.parametrize("off", [0.85, 1.15])
def test_the_largest_batch_fits_in_a_fresh_process_whatever_the_climb_shows(off: float) -> None:
    """A process that has run smaller batches may need less memory than a fresh one, or more."""

    class Misleading(FakeBench):
        def run(self, what: str, spec: ProbeSpec, budget: Budget, trial: Trial) -> Outcome:
            own = super().run(what, spec, budget, without_further(trial))
            if not isinstance(trial, Search) or trial.further_within_s is None or ", batch" in what:
                return super().run(what, spec, budget, trial)
            climbed = FakeBench(lambda spec, at: int(law(spec, at) * off)).run(what, spec, budget, trial)
            assert isinstance(own, Fitted)
            return dataclasses.replace(own, further=climbed.further, further_failed=climbed.further_failed)

    explanation = explained(bench=Misleading())
    remat = named(explanation, "rematerialisation").cost
    assert remat is not None
    for cost, truth in ((explanation.before, 90), (remat, 180)):
        assert 0.95 * truth <= cost.largest_batch_size <= truth
        assert cost.certainty is Certainty.RAN


class SlowBench(ShortBench):
    def __init__(self, law: Law, duration_s: float) -> None:
        super().__init__(law)
        self.duration_s = duration_s

    def run(self, what: str, spec: ProbeSpec, budget: Budget, trial: Trial) -> Outcome:
        return dataclasses.replace(super().run(what, spec, budget, trial), duration_s=self.duration_s)


def test_slow_trials_lead_to_a_careful_prediction() -> None:
    """A straight line would predict 90; memory per sample never rises with the batch, so a smaller batch is safe."""
    explanation = explained(bench=SlowBench(law, 60.0))
    batch = explanation.candidate.batch_size
    assert batch < explanation.before.largest_batch_size <= batch * 100 // (10 + batch) < 90
    assert before_row(explanation).batch.startswith("~")
    assert explanation_document(explanation)["before"]["largest_batch_size"]["certainty"] == "predicted"
    assert any("predicted" in note for note in remedy_notes(explanation))


def test_a_batch_that_may_not_be_the_largest_is_reported_as_a_lower_bound() -> None:
    """There is time for one more trial, and on such a flat curve it ends far from the edge."""
    explanation = explained(bench=SlowBench(lambda _, at: (40 + at.batch_size // 20) * MIB, 30.0))
    assert explanation.before.certainty is Certainty.AT_LEAST
    assert before_row(explanation).batch.startswith("≥")
    assert any("more may fit" in note for note in remedy_notes(explanation))


def test_a_model_for_one_batch_size_has_no_larger_batch() -> None:
    class ForOneSize(FakeBench):
        def run(self, what: str, spec: ProbeSpec, budget: Budget, trial: Trial) -> Outcome:
            outcome = super().run(what, spec, budget, without_further(trial))
            return outcome if trial.candidate.batch_size == 8 else failed(Kind.CRASH, points=())

    explanation = explained(Request(batch_size=8), ForOneSize())
    costs = [explanation.before, *(remedy.cost for remedy in explanation.remedies if remedy.cost)]
    assert {(cost.largest_batch_size, cost.certainty) for cost in costs} == {(8, Certainty.NO_LARGER)}
    assert before_row(explanation).batch == "=8"
    assert growth_sentences(explanation) == ["Only this batch ran, so how memory grows with the batch is unknown."]
    assert "a larger batch fails for a reason other than memory" in remedy_notes(explanation)[-1]


def test_far_from_the_edge_steps_cover_half_of_the_distance() -> None:
    sizes, points = range(11, 1000), [Point(batch_size=10, peak_bytes=25, step_ms=1.0)]
    assert next_further(sizes, points, 100) == 40
    assert next_further(sizes, points, 100, from_afar=True) == 20
    assert next_further(sizes, [Point(batch_size=99, peak_bytes=99, step_ms=1.0)], 100, from_afar=True) == 100


def test_growth_is_measured_even_if_no_climb_chose_the_candidate() -> None:
    bench = FakeBench()
    growth = explained(Request(batch_size=88, sequence_length=128), bench).growth
    assert growth.bytes_per_sample == pytest.approx(MIB, rel=0.01)
    assert [what for what, _ in bench.ran].count("how memory grows with the batch") == 1
