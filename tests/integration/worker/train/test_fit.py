"""Confirm runs through `Model.fit`: two epochs with validation and a checkpoint at the end of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from oomtune.domain import Failed, Kind, Stage
from tests.support.leaky_models import RunConfirm, line_of


def test_a_model_with_its_own_train_step_and_no_metrics_trains(confirm: RunConfirm) -> None:
    outcome = confirm({"builder": "leaky_models:own_loss"})
    assert outcome.kind is Kind.FITS, outcome.error


def test_weights_that_cannot_be_saved_are_a_finding_and_not_a_failure(confirm: RunConfirm, leaky_folder: Path) -> None:
    outcome = confirm({"builder": "leaky_models:never_saved"}, trial__confirm_steps=4)
    assert (outcome.kind, outcome.steps_run) == (Kind.FITS, 5)
    (finding,) = outcome.findings
    assert (finding.kind, finding.where) == ("checkpoint", line_of(leaky_folder, "NeverSaved"))
    assert finding.message == "the weights can't be saved: RuntimeError: not this layer"


def test_a_model_that_can_save_only_its_weights_is_a_finding(confirm: RunConfirm) -> None:
    outcome = confirm({"builder": "leaky_models:without_config"}, trial__confirm_steps=4)
    assert outcome.kind is Kind.FITS, outcome.error
    (finding,) = outcome.findings
    assert finding.message.startswith("the weights can be saved, but not the whole model: ")
    assert "save_weights_only=True" in finding.hint


def test_running_out_of_memory_in_a_checkpoint_counts_as_out_of_memory_even_if_wrapped(confirm: RunConfirm) -> None:
    outcome = confirm({"builder": "leaky_models:no_room"}, trial__confirm_steps=4)
    assert outcome.kind is Kind.DEVICE_OOM


def test_without_validation_there_are_still_two_epochs_with_a_checkpoint(confirm: RunConfirm) -> None:
    outcome = confirm(
        {"builder": "leaky_models:never_saved"}, trial__confirm_steps=4, training__validation_batch_size="none"
    )
    assert not outcome.validated
    assert [finding.kind for finding in outcome.findings] == ["checkpoint"]


@pytest.mark.parametrize(
    ("in_validation", "stage", "message"),
    [
        (False, Stage.TRAIN, "RuntimeError: late (in training, after 12 steps)"),
        (True, Stage.VALIDATE, "RuntimeError: validated (in validation, after 7 steps)"),
    ],
)
def test_a_crash_after_many_steps_reports_how_far_training_came(
    confirm: RunConfirm, in_validation: bool, stage: Stage, message: str
) -> None:
    outcome = confirm({"builder": "leaky_models:fails_late", "args": {"in_validation": in_validation}})
    assert (outcome.kind, outcome.stage) == (Kind.CRASH, stage)
    assert outcome.error is not None
    assert outcome.error.message == message
    assert "leaky_models.py" in outcome.error.traceback


def test_free_memory_in_pieces_that_are_too_small_is_reported_as_fragmentation(confirm: RunConfirm) -> None:
    outcome = confirm({"builder": "leaky_models:holes"})
    assert isinstance(outcome, Failed)
    assert outcome.kind is Kind.DEVICE_OOM
    state, error = outcome.allocator, outcome.error
    assert state is not None
    assert error.code == "fragmentation"
    assert state.limit_bytes == 24 * 1024**2
    assert state.largest_free_bytes < state.largest_held_bytes == 6 * 1024**2 <= state.free_bytes
    assert state.fragmentation > 0.5
    assert error.hint.startswith("use a smaller batch")
