"""A function that TensorFlow traces in every step is reported with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.leaky_models import RunConfirm, line_of


@pytest.mark.parametrize(
    ("builder", "mark", "message", "hint"),
    [
        ("counts", "Counts", "scaled() was traced 15 times in 15 steps: 'scale' was 15, then 16", "tf.constant(scale)"),
        (
            "makes_functions",
            "MakesFunctions",
            "doubled() was traced 15 times in 15 steps: a new tf.function each time",
            "once, outside the step",
        ),
    ],
)
def test_a_function_that_is_traced_in_every_step_is_reported_with_the_reason(
    confirm: RunConfirm, leaky_folder: Path, builder: str, mark: str, message: str, hint: str
) -> None:
    (finding,) = confirm({"builder": f"leaky_models:{builder}"}).findings
    assert (finding.kind, finding.where) == ("retrace", line_of(leaky_folder, mark))
    assert message in finding.message
    assert hint in finding.hint
