"""Memory that grows from step to step is reported with its holder, its rate and the line to change."""

from __future__ import annotations

from pathlib import Path

import pytest

from oomtune.domain import Kind
from tests.support.leaky_models import RunConfirm, line_of


@pytest.mark.parametrize(
    ("builder", "kind", "message", "bytes_per_step"),
    [
        ("in_a_list", "kept_tensors", "InAList.kept, a list, holds 1 more tensor after each step", 200_000),
        ("in_a_list_anew", "kept_tensors", "InAListAnew.log, a list, holds 1 more tensor after each step", 200_000),
        ("in_a_tuple", "kept_tensors", "InATuple.log, a tuple, holds 1 more tensor after each step", 200_000),
        ("every_second", "kept_tensors", "EverySecond.kept, a list, holds 0.5 more tensors after each step", 100_000),
        ("in_a_dict", "kept_tensors", "InADict.seen['outputs'], a list, holds 1 more", 160_000),
        ("one_tensor", "leak", "the tensor OneTensor.bank grows by 78.1 KiB per step", 80_000),
        ("new_variables", "leak", "NewVariables.made, a dict, holds 1 more variable after each step", 120_000),
    ],
)
def test_a_leak_is_reported_with_its_holder_its_rate_and_its_line(
    confirm: RunConfirm, leaky_folder: Path, builder: str, kind: str, message: str, bytes_per_step: int
) -> None:
    outcome = confirm({"builder": f"leaky_models:{builder}"})
    assert outcome.kind is Kind.FITS, outcome.error
    (finding,) = outcome.findings
    class_name = "".join(word.capitalize() if word != "a" else "A" for word in builder.split("_"))
    assert (finding.kind, finding.where) == (kind, line_of(leaky_folder, class_name))
    assert message in finding.message
    assert finding.bytes_per_step == pytest.approx(bytes_per_step, rel=0.01)
    if builder != "one_tensor":  # the allocator serves this tensor from pieces of several sizes
        assert outcome.leak_bytes_per_step == pytest.approx(bytes_per_step, rel=0.3)


@pytest.mark.parametrize(("builder", "mark"), [("from_a_graph", "FromAGraph"), ("converted", "Converted")])
def test_a_leak_in_a_function_that_a_graph_calls_is_reported_at_the_line_the_user_wrote(
    confirm: RunConfirm, leaky_folder: Path, builder: str, mark: str
) -> None:
    outcome = confirm({"builder": f"leaky_models:{builder}"}, training__run_eagerly=False)
    assert outcome.kind is Kind.FITS, outcome.error
    (finding,) = outcome.findings
    assert (finding.kind, finding.where) == ("kept_tensors", line_of(leaky_folder, mark))
    assert "FromAGraph.kept, a list, holds 1 more tensor after each step, 200 KiB per step" in finding.message


def test_even_a_small_leak_in_the_users_own_step_is_reported(confirm: RunConfirm, leaky_folder: Path) -> None:
    outcome = confirm({"train_step": "leaky_models:step_factory"}, training=None)
    (finding,) = outcome.findings
    assert (finding.kind, finding.where) == ("kept_tensors", line_of(leaky_folder, "step_factory"))
    assert finding.message == "losses in step(), a list, holds 1 more tensor after each step, 4 B per step"
    assert outcome.leak_bytes_per_step == 0, "over a few thousand steps the leak is negligible"


LOOP = """\
import sys
import oomtune
import tensorflow as tf

def main(size):
    outputs, weights = [], tf.Variable(tf.zeros([64, 1]))
    while True:
        made = tf.zeros([size, 64]) @ weights * tf.ones([1, 5_000])
        outputs.append({"made": made})
        oomtune.step(tf.reduce_mean(made))

main(int(sys.argv[1]))
"""


def test_a_leak_in_the_loop_of_a_script_is_reported(confirm: RunConfirm, leaky_folder: Path) -> None:
    path = leaky_folder / "loop.py"
    path.write_text(LOOP)
    outcome = confirm({"script": {"path": str(path), "args": ["{batch_size}"]}}, training=None, dataset=None)
    (finding,) = outcome.findings
    assert (finding.kind, finding.where) == ("kept_tensors", f"{path}:9")
    assert finding.message == "outputs in main(), a list, holds 1 more tensor after each step, 156 KiB per step"


def test_a_model_without_faults_has_no_findings(confirm: RunConfirm) -> None:
    for eagerly in (True, False):
        outcome = confirm({"builder": "leaky_models:fine"}, training__run_eagerly=eagerly)
        assert (outcome.kind, outcome.findings) == (Kind.FITS, ())
