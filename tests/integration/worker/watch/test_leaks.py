"""What only longer training would show: memory that grows, graphs traced at every step, tensors that are kept, and
checkpoints that can't be written. Each is named with a figure and the line to change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oomtune.domain import Budget, Candidate, Confirm, Kind, Outcome, Stage
from oomtune.trials.local import ForkRunner
from oomtune.trials.worker_host import WorkerHost
from tests.support.leaky_models import MODELS
from tests.support.specs import CPU, small_probe_spec


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("leaks")
    (folder / "leaky_models.py").write_text(MODELS)
    return folder


@pytest.fixture(scope="module")
def host() -> Iterator[WorkerHost]:
    running = WorkerHost("fork")
    yield running
    running.close()


RunConfirm = Callable[..., Outcome]


@pytest.fixture
def confirm(host: WorkerHost, folder: Path) -> RunConfirm:
    def run(model: dict[str, Any], batch_size: int = 8, **overrides: Any) -> Outcome:
        training = {} if model.keys() & {"train_step", "script"} else {"training__run_eagerly": True}
        chosen = {**training, "trial__confirm_steps": 15, "model": model, **overrides}
        spec = small_probe_spec(folder, **chosen)
        budget = Budget(limit_bytes=spec.device.memory_limit_bytes or 0)
        runner = ForkRunner(spec=spec, device=CPU, budget=budget, notice=print, host=host)
        return runner.run(Confirm(candidate=Candidate(batch_size=batch_size)))

    return run


def line_of(folder: Path, name: str) -> str:
    lines = MODELS.splitlines()
    number = next(number for number, line in enumerate(lines, 1) if line.endswith(f"# LINE {name}"))
    return f"{folder / 'leaky_models.py'}:{number}"


@pytest.mark.parametrize(
    ("builder", "kind", "said", "per_step"),
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
def test_what_grows_is_named_with_its_rate_and_the_line_that_makes_it_grow(
    confirm: RunConfirm, folder: Path, builder: str, kind: str, said: str, per_step: int
) -> None:
    outcome = confirm({"builder": f"leaky_models:{builder}"})
    assert outcome.kind is Kind.FITS, outcome.error
    (finding,) = outcome.findings
    named = "".join(word.capitalize() if word != "a" else "A" for word in builder.split("_"))
    assert (finding.kind, finding.where) == (kind, line_of(folder, named))
    assert said in finding.message
    assert finding.bytes_per_step == pytest.approx(per_step, rel=0.01)
    if builder != "one_tensor":  # the allocator gives that one pieces of several sizes, by turns
        assert outcome.leak_bytes_per_step == pytest.approx(per_step, rel=0.3)


@pytest.mark.parametrize(("builder", "line"), [("from_a_graph", "FromAGraph"), ("converted", "Converted")])
def test_what_a_graph_calls_back_has_its_line_too_as_the_user_wrote_it(
    confirm: RunConfirm, folder: Path, builder: str, line: str
) -> None:
    outcome = confirm({"builder": f"leaky_models:{builder}"}, training__run_eagerly=False)
    assert outcome.kind is Kind.FITS, outcome.error
    (finding,) = outcome.findings
    assert (finding.kind, finding.where) == ("kept_tensors", line_of(folder, line))
    assert "FromAGraph.kept, a list, holds 1 more tensor after each step, 200 KiB per step" in finding.message


def test_a_model_whose_own_step_knows_no_metrics_trains_as_it_does_without_us(confirm: RunConfirm) -> None:
    outcome = confirm({"builder": "leaky_models:own_loss"})
    assert outcome.kind is Kind.FITS, outcome.error


def test_a_step_of_the_users_own_is_watched_too_and_so_is_a_small_leak(confirm: RunConfirm, folder: Path) -> None:
    outcome = confirm({"train_step": "leaky_models:step_factory"}, training=None)
    (finding,) = outcome.findings
    assert (finding.kind, finding.where) == ("kept_tensors", line_of(folder, "step_factory"))
    assert finding.message == "losses in step(), a list, holds 1 more tensor after each step, 4 B per step"
    assert outcome.leak_bytes_per_step == 0, "it is no matter in a run of some thousand steps"


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


def test_a_loop_in_a_script_is_watched_while_it_runs(confirm: RunConfirm, folder: Path) -> None:
    (folder / "loop.py").write_text(LOOP)
    outcome = confirm(
        {"script": {"path": str(folder / "loop.py"), "args": ["{batch_size}"]}}, training=None, dataset=None
    )
    (finding,) = outcome.findings
    assert (finding.kind, finding.where) == ("kept_tensors", f"{folder / 'loop.py'}:9")
    assert finding.message == "outputs in main(), a list, holds 1 more tensor after each step, 156 KiB per step"


@pytest.mark.parametrize(
    ("builder", "line", "said", "advised"),
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
def test_a_graph_that_is_traced_at_every_step_is_named_with_the_reason(
    confirm: RunConfirm, folder: Path, builder: str, line: str, said: str, advised: str
) -> None:
    (finding,) = confirm({"builder": f"leaky_models:{builder}"}).findings
    assert (finding.kind, finding.where) == ("retrace", line_of(folder, line))
    assert said in finding.message
    assert advised in finding.hint


def test_a_model_with_nothing_wrong_has_no_findings(confirm: RunConfirm) -> None:
    for eagerly in (True, False):
        outcome = confirm({"builder": "leaky_models:fine"}, training__run_eagerly=eagerly)
        assert (outcome.kind, outcome.findings) == (Kind.FITS, ())


def test_a_step_of_the_users_own_has_two_epochs_with_validation_after_each(confirm: RunConfirm) -> None:
    outcome = confirm({"train_step": "leaky_models:counted_epochs"}, training=None, trial__confirm_steps=4)
    assert outcome.kind is Kind.CRASH, "its second validation says what ran before it"
    assert outcome.error is not None
    assert "ran tttvttv" in outcome.error.message


def test_weights_that_cannot_be_saved_are_a_finding_and_no_failure(confirm: RunConfirm, folder: Path) -> None:
    outcome = confirm({"builder": "leaky_models:never_saved"}, trial__confirm_steps=4)
    assert (outcome.kind, outcome.steps_run) == (Kind.FITS, 5)
    (finding,) = outcome.findings
    assert (finding.kind, finding.where) == ("checkpoint", line_of(folder, "NeverSaved"))
    assert finding.message == "the weights can't be saved: RuntimeError: not this layer"


def test_a_model_that_can_only_save_its_weights_is_a_finding_too(confirm: RunConfirm) -> None:
    outcome = confirm({"builder": "leaky_models:unsaid"}, trial__confirm_steps=4)
    assert outcome.kind is Kind.FITS, outcome.error
    (finding,) = outcome.findings
    assert finding.message.startswith("the weights can be saved, but not the whole model: ")
    assert "save_weights_only=True" in finding.hint


def test_memory_that_runs_out_in_a_checkpoint_is_memory_however_it_is_wrapped(confirm: RunConfirm) -> None:
    outcome = confirm({"builder": "leaky_models:no_room"}, trial__confirm_steps=4)
    assert outcome.kind is Kind.DEVICE_OOM


def test_without_validation_there_are_still_two_epochs_with_a_checkpoint(confirm: RunConfirm) -> None:
    outcome = confirm(
        {"builder": "leaky_models:never_saved"}, trial__confirm_steps=4, training__validation_batch_size="none"
    )
    assert not outcome.validated
    assert [finding.kind for finding in outcome.findings] == ["checkpoint"]


@pytest.mark.parametrize(
    ("in_validation", "stage", "said"),
    [(False, Stage.TRAIN, "RuntimeError: late (in training, after 12 steps)"),
     (True, Stage.VALIDATE, "RuntimeError: validated (in validation, after 7 steps)")],
)  # fmt: skip
def test_a_crash_after_many_steps_says_how_far_training_had_come(
    confirm: RunConfirm, in_validation: bool, stage: Stage, said: str
) -> None:
    outcome = confirm({"builder": "leaky_models:fails_late", "args": {"in_validation": in_validation}})
    assert (outcome.kind, outcome.stage) == (Kind.CRASH, stage)
    assert outcome.error is not None
    assert outcome.error.message == said
    assert "leaky_models.py" in outcome.error.traceback


def test_memory_that_is_free_in_small_pieces_only_is_told_as_fragmentation(confirm: RunConfirm) -> None:
    outcome = confirm({"builder": "leaky_models:holes"})
    assert outcome.kind is Kind.DEVICE_OOM
    state, error = outcome.allocator, outcome.error
    assert state is not None
    assert error is not None
    assert error.code == "fragmentation"
    assert state.limit_bytes == 24 * 1024**2
    assert state.largest_free_bytes < state.largest_held_bytes == 6 * 1024**2 <= state.free_bytes
    assert state.fragmentation > 0.5
    assert error.hint.startswith("use a smaller batch")
