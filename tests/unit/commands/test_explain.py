"""Explanations on a fake device: the candidate, the remedies, and how both are shown."""

from __future__ import annotations

import dataclasses
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from oomtune.commands.explain import ExplainOptions
from oomtune.commands.explain.candidate import Request
from oomtune.commands.explain.growth import careful_line, fitted_line, measure_growth
from oomtune.commands.explain.remedies import variations
from oomtune.commands.explain.run import explain
from oomtune.domain import (
    Candidate,
    Certainty,
    Cost,
    Point,
    RematMode,
    TrainStep,
)
from oomtune.errors import NothingFits, TrialCrashed, UsageProblem
from oomtune.report.explanation import growth_sentences, part_rows, remedy_rows, spec_lines
from oomtune.report.json_document import explanation_document
from oomtune.report.terminal import print_explanation
from oomtune.spec import load_spec, read_document
from tests.support.benches import ANATOMY, BUDGET, MIB, SEQUENCES, FakeBench, explained, is_dissection
from tests.support.specs import CPU, small_probe_spec, small_spec


def test_a_spec_is_explained_at_half_of_the_budget_in_at_most_25_trials() -> None:
    bench = FakeBench()
    explanation = explained(bench=bench)
    assert explanation.candidate.sequence_length == 128
    assert 0.4 < explanation.before.peak_bytes / BUDGET.budget_bytes <= 0.5
    assert explanation.trials == len(bench.ran) <= 25
    assert [is_dissection(trial) for _, trial in bench.ran].count(True) == 1


def test_if_the_smallest_batch_takes_most_of_the_budget_a_larger_one_is_explained() -> None:
    explanation = explained(bench=FakeBench(lambda _, candidate: (60 + candidate.batch_size) * MIB))
    assert 1 < explanation.candidate.batch_size < 40
    assert "half way" in explanation.chosen


def test_requested_sizes_are_explained() -> None:
    explanation = explained(Request(batch_size=7, sequence_length=48))
    assert (explanation.candidate.batch_size, explanation.candidate.sequence_length) == (7, 48)


def test_nothing_fits_comes_with_advice() -> None:
    with pytest.raises(NothingFits, match="batch 1, sequence 32") as error:
        explained(bench=FakeBench(lambda _, candidate: 200 * MIB))
    assert error.value.hint


@pytest.mark.parametrize(
    ("request_", "advised", "not_advised"),
    [
        (Request(batch_size=4000), "--batch-size 2000", "search.batch_size"),
        (Request(batch_size=200, sequence_length=512), "--sequence-length 256", "search.sequence_length"),
    ],
)
def test_advice_names_flags_where_flags_override_the_spec(request_: Request, advised: str, not_advised: str) -> None:
    with pytest.raises(NothingFits) as error:  # with what comes before these in use already
        explained(request_, search__remat=["full"], search__precision=["mixed_bfloat16"])
    assert advised in error.value.hint
    assert not_advised not in error.value.hint


def test_a_broken_model_is_a_crash_and_not_a_matter_of_memory() -> None:
    with pytest.raises(TrialCrashed, match="XLA can't do that"):
        explained(training__jit_compile=True)


def test_remedies_are_measured_at_one_candidate_and_the_largest_batch_comes_first() -> None:
    explanation = explained()
    cost = {remedy.name: remedy.cost for remedy in explanation.remedies}
    batch, before = explanation.candidate.batch_size, explanation.before.peak_bytes
    assert before == (10 + batch) * MIB
    assert cost["rematerialisation"] is not None
    assert cost["rematerialisation"].peak_bytes == (10 + batch / 2) * MIB
    assert 0.96 * 180 <= cost["rematerialisation"].largest_batch_size <= 180
    assert 0.96 * 90 <= explanation.before.largest_batch_size <= 90
    assert explanation.before.certainty is Certainty.RAN
    allowed = [remedy.cost.largest_batch_size for remedy in explanation.remedies if remedy.cost]
    assert allowed == sorted(allowed, reverse=True)
    assert explanation.remedies[-1].name == "XLA on"
    assert explanation.remedies[-1].problem == "XLA can't do that"


def test_accumulation_trains_the_same_batch_in_two_steps() -> None:
    explanation = explained()
    remedy = next(one for one in explanation.remedies if one.name == "gradient accumulation")
    batch = explanation.candidate.batch_size
    assert remedy.entries == {
        "training.effective_batch_size": batch,
        "search.batch_size": {"max": math.ceil(batch / 2)},
    }
    assert remedy.cost is not None
    assert remedy.cost.step_ms > 0.9 * explanation.before.step_ms


@pytest.mark.parametrize(
    ("optimizer", "lighter"),
    [
        ("adam", {"adafactor for adam", "sgd for adam"}),
        ("adafactor", {"sgd for adafactor"}),
        ("sgd", set()),
        (
            {"class_name": "SGD", "config": {"momentum": 0.9}},
            {"adafactor for sgd with momentum", "sgd without momentum"},
        ),
    ],
)
def test_only_lighter_optimizers_are_tried(optimizer: Any, lighter: set[str]) -> None:
    spec = small_probe_spec(training__optimizer=optimizer)
    found = variations(spec, Candidate(batch_size=8), None, False)
    assert {one.name for one in found if "training.optimizer" in one.entries} == lighter


def test_a_lighter_optimizer_keeps_the_chosen_learning_rate() -> None:
    spec = small_probe_spec(training__optimizer={"class_name": "AdamW", "config": {"learning_rate": 1e-4}})
    sgd = next(one for one in variations(spec, Candidate(batch_size=8), None, False) if one.name == "sgd for adamw")
    assert sgd.entries["training.optimizer"] == {"class_name": "SGD", "config": {"learning_rate": 1e-4}}


def test_remedies_already_in_the_spec_are_left_out() -> None:
    spec = small_probe_spec()
    half = Candidate(batch_size=8, precision="mixed_bfloat16", remat=RematMode.FULL)
    assert {one.name for one in variations(spec, half, None, True)} == {"gradient accumulation", "XLA off"}


def test_a_custom_training_loop_is_offered_only_applicable_remedies() -> None:
    spec = small_probe_spec()
    model = TrainStep(factory="steps:make")
    found = variations(dataclasses.replace(spec, model=model), Candidate(batch_size=8), ANATOMY, None)
    assert [list(one.entries) for one in found if not one.obstacle] == [["search.precision"], ["search.precision"]]


def test_every_remedy_line_is_a_valid_spec_entry() -> None:
    for remedy in explained(training__optimizer={"class_name": "AdamW", "config": {"learning_rate": 0.001}}).remedies:
        spec = small_spec(**SEQUENCES)
        for line in spec_lines(remedy) if remedy.entries else ():
            ((section, entry),) = yaml.safe_load(line).items()
            spec[section] |= entry
        load_spec(spec)


def test_growth_is_described_in_words() -> None:
    explanation = explained()
    formula, sequence = growth_sentences(explanation)
    assert "About 10.0 MiB fixed, and 1.0 MiB for each sample of 128 tokens" in formula
    assert "by 2.0: memory is linear" in sequence


@pytest.mark.parametrize(("shorter_peak", "doubling"), [(60, 2.0), (35, 4.0), (50, 2.8), (75, 2.0)])
def test_growth_with_the_sequence_is_measured_at_the_same_batch(shorter_peak: int, doubling: float) -> None:
    """10 bytes are fixed, and a batch of 10 takes 100 more at 64 tokens. At 32 tokens, half of that is linear growth."""
    points = tuple(Point(batch_size=size, peak_bytes=10 + 10 * size, step_ms=1.0) for size in (1, 4, 10))
    here, shorter = (Cost(peak_bytes=peak, step_ms=1.0, largest_batch_size=9) for peak in (110, shorter_peak))
    at = Candidate(batch_size=10, sequence_length=64)
    growth = measure_growth(points, at, here, {32: shorter})
    assert growth.doubling == pytest.approx(doubling)
    assert growth.bytes_per_token is not None
    assert growth.bytes_per_pair is not None
    assert 10 * 64 * (growth.bytes_per_token + 64 * growth.bytes_per_pair) == pytest.approx(100)
    assert measure_growth(points, at, here, {}).doubling is None


def test_lines_through_points_ignore_noise_and_the_flat_part() -> None:
    flat = {1: 100, 8: 104}
    assert careful_line(flat) is None
    assert fitted_line(flat) is None
    noisy = {10: 20, 100: 110, 160: 150}
    line = careful_line(noisy)
    assert line is not None
    assert line.edge(200) == pytest.approx(190), "by the steepest pair, which predicts the least"
    bent = {1: 100, 2: 100, 64: 300, 128: 600}
    fitted = fitted_line(bent)
    assert fitted is not None
    assert fitted.bytes_per_sample == pytest.approx(300 / 64)


def test_screen_and_document_agree_and_print_names_verbatim() -> None:
    explanation = explained()
    text = io.StringIO()
    print_explanation(Console(file=text, width=120), explanation)
    shown, document = text.getvalue(), json.loads(json.dumps(explanation_document(explanation)))
    assert "[bold]lstm" in shown
    assert "activations kept for the backward pass" in shown
    assert "not measured: XLA on: XLA can't do that" in shown
    assert [row.name for row in remedy_rows(explanation)] == [entry["name"] for entry in document["remedies"]]
    assert part_rows(explanation)[0].origin == "measured"
    assert {part["held"]: part["how"] for part in document["anatomy"]["parts"]} == {
        "weights": "computed",
        "activations": "measured",
    }
    assert document["before"]["largest_batch_size"]["certainty"] == "ran"


def test_a_script_is_explained_without_an_anatomy() -> None:
    explanation = dataclasses.replace(explained(), anatomy=None)
    text = io.StringIO()
    print_explanation(Console(file=text, width=120), explanation)
    assert "its parts could not be measured" in text.getvalue()
    assert explanation_document(explanation)["anatomy"] is None


def requested(path: Path, **options: Any) -> Request:
    document = read_document(path)
    return ExplainOptions(**options).request(load_spec(document), document.values)


def test_a_tuned_config_is_explained_at_its_answer_and_with_its_optimizer(tmp_path: Path) -> None:
    evidence = {"confirmed": True, "device": {"kind": "cpu", "memory_limit_bytes": MIB}, "oomtune": "0.1.0"}
    answer: dict[str, Any] = {"batch_size": 12, "sequence_length": 64, "precision": "mixed_bfloat16", "remat": "full"}
    steps = {"gradient_accumulation_steps": 1, "effective_batch_size": 12}
    path = tmp_path / "m.tuned.yaml"
    tuned = {"format": 1, **answer, **steps, "optimizer": "lion", "evidence": evidence}
    path.write_text(yaml.safe_dump(small_spec(**SEQUENCES) | {"tuned": tuned}))
    request = requested(path)
    spec = request.with_answers_optimizer(load_spec(path).spec)
    assert spec.training.optimizer == "lion"
    explanation = explain(spec, CPU, BUDGET, request, FakeBench())
    assert explanation.candidate == Candidate(**answer)
    assert "tuned" in explanation.chosen
    assert requested(path, settings=["search.precision=[float32]"]).tuned is None, "another search is requested"
    for flag in ("batch_size", "sequence_length"):
        with pytest.raises(UsageProblem, match="expected 1 or more"):
            requested(path, **{flag: 0})
    path.write_text(yaml.safe_dump(small_spec()))
    with pytest.raises(UsageProblem, match=r"no search\.sequence_length"):
        requested(path, sequence_length=8)
