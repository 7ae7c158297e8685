"""`oomtune probe` through the real command line, on real TensorFlow."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from oomtune.errors import OomtuneError
from oomtune.spec import load_spec
from tests.support.cli import Cli, Ran
from tests.support.specs import small_spec


class Probed:
    """A finished probe that several tests share."""

    def __init__(self, folder: Path) -> None:
        self.cli = Cli(folder)
        self.spec = folder / "model.yaml"
        self.spec.write_text(yaml.safe_dump(small_spec(), sort_keys=False))
        self.tuned = folder / "model.tuned.yaml"
        self.ran = self.cli("probe", self.spec, "--json")
        self.first_tuned = self.tuned.read_text() if self.tuned.exists() else ""


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Probed:
    return Probed(tmp_path_factory.mktemp("probed"))


def test_it_finds_and_confirms_an_answer(probed: Probed) -> None:
    assert probed.ran.code == 0, probed.ran.err
    document = probed.ran.document
    assert (document["verdict"], document["exit_code"], document["error"]) == ("tuned", 0, None)
    last = document["trials"][-1]
    confirmed = [trial for trial in document["trials"] if trial["purpose"] == "confirm" and trial["outcome"] == "fits"]
    (confirm,) = [trial for trial in confirmed if trial["candidate"] == document["best"]]
    assert confirm["stage"] == "done"
    assert last["number"] == len(document["trials"])
    assert document["memory"]["peak_bytes"] <= document["memory"]["budget_bytes"] < document["memory"]["limit_bytes"]


def test_the_json_document_has_every_promised_key(probed: Probed) -> None:
    document = probed.ran.document
    assert set(document) >= {
        "format", "oomtune", "command", "exit_code", "verdict", "best", "memory", "throughput", "trials", "frontier",
        "tuned_path", "ledger_path", "environment", "error",
    }  # fmt: skip
    assert set(document["best"]) == {"batch_size", "sequence_length", "precision", "remat"}
    for trial in document["trials"]:
        assert set(trial) - {"further", "further_failed"} == {  # where it went on to larger sizes
            "number", "purpose", "candidate", "outcome", "stage", "peak_bytes", "step_ms", "duration_s", "points", "error",
        }  # fmt: skip
        assert trial["outcome"] in ("fits", "device_oom", "host_oom", "timeout", "crash")
        assert trial["purpose"] in ("calibrate", "search", "confirm")
        assert trial["stage"] in ("build", "data", "warmup", "train", "validate", "done")
    calibrated = document["trials"][0]
    assert set(calibrated["points"][0]) == {"batch_size", "peak_bytes", "step_ms"}
    assert document["throughput"]["samples_per_second"] == pytest.approx(
        document["best"]["batch_size"] * 1000 / document["throughput"]["step_ms"]
    )
    assert document["frontier"][0]["batch_size"] == document["best"]["batch_size"]


def test_the_next_larger_batch_did_not_fit(probed: Probed) -> None:
    best = probed.ran.document["best"]["batch_size"]
    larger = yaml.safe_load(probed.first_tuned)["tuned"]["evidence"]["next_larger"]
    assert best < larger["batch_size"] <= best * 1.12


def test_stderr_has_one_line_per_trial_and_stdout_only_the_answer(probed: Probed) -> None:
    assert len(probed.ran.out.splitlines()) == 1
    lines = [line for line in probed.ran.err.splitlines() if line.startswith("trial ")]
    assert len(lines) == len(probed.ran.document["trials"])


def test_the_tuned_config_is_the_spec_with_the_answer_and_its_evidence(probed: Probed) -> None:
    values = yaml.safe_load(probed.first_tuned)
    tuned, evidence = values["tuned"], values["tuned"]["evidence"]
    document = probed.ran.document
    assert {key: value for key, value in values.items() if key != "tuned"} == small_spec()
    assert (tuned["format"], tuned["batch_size"], tuned["precision"]) == (1, document["best"]["batch_size"], "float32")
    assert tuned["gradient_accumulation_steps"] == 1
    assert evidence["confirmed"] is True
    assert evidence["validation_run"] is True
    assert evidence["steps_run"] >= 4
    assert evidence["peak_bytes"] == document["memory"]["peak_bytes"]
    assert evidence["device"]["memory_limit_bytes"] == 24 * 1024**2
    assert evidence["next_larger"]["outcome"] == "device_oom"
    assert evidence["trials"] == len(document["trials"])
    assert load_spec(probed.tuned).was_tuned
    assert evidence["spec_sha256"] == load_spec(probed.spec).sha256 == load_spec(probed.tuned).sha256


def test_the_same_command_again_runs_no_trial_and_gives_the_same_answer(probed: Probed) -> None:
    again = probed.cli("probe", probed.spec, "--json")
    assert again.code == 0
    assert again.document["new_trials"] == 0
    assert again.document["best"] == probed.ran.document["best"]
    assert again.document["trials"] == probed.ran.document["trials"]


def test_probing_the_tuned_config_continues_from_its_answer(probed: Probed) -> None:
    again = probed.cli("probe", probed.tuned, "--json")
    assert again.code == 0
    assert again.document["tuned_path"] == str(probed.tuned)


def test_fresh_runs_every_trial_again_and_finds_a_similar_answer(probed: Probed) -> None:
    copy = probed.cli.folder / "copy.yaml"
    copy.write_text(probed.spec.read_text())
    assert probed.cli("probe", copy, "-q", "--max-trials", "1").code == 7
    again = probed.cli("probe", copy, "--json", "--fresh")
    assert again.code == 0
    assert again.document["new_trials"] == len(again.document["trials"]) > 0
    first, second = probed.ran.document["best"]["batch_size"], again.document["best"]["batch_size"]
    # This spec's resolution, and the noise of so small a model on a machine that is busy.
    assert second == pytest.approx(first, rel=0.05 + 0.15)


def test_the_printed_answer_has_lines_to_paste(probed: Probed) -> None:
    ran = probed.cli("probe", probed.spec, "-q")
    assert ran.code == 0
    assert ran.err == ""
    assert str(probed.ran.document["best"]["batch_size"]) in ran.out
    assert "oomtune.keras.setup(tuned)" in ran.out
    assert "\x1b[" not in ran.out


def test_a_file_of_the_user_is_never_replaced_without_force(probed: Probed) -> None:
    theirs = probed.cli.folder / "precious.yaml"
    theirs.write_text("tuned: mine\n")
    ran = probed.cli("probe", probed.spec, "-o", theirs)
    assert (ran.code, theirs.read_text()) == (2, "tuned: mine\n")
    assert "--force" in ran.err
    assert probed.cli("probe", probed.spec, "-o", probed.spec).code == 2
    assert yaml.safe_load(probed.spec.read_text()) == small_spec()
    assert probed.cli("probe", probed.spec, "-q", "-o", theirs, "--force").code == 0
    assert "evidence" in theirs.read_text()


def test_an_answer_written_elsewhere_still_finds_its_spec(probed: Probed) -> None:
    folder = probed.cli.folder / "elsewhere"
    folder.mkdir()
    output = folder / "answer.yaml"
    assert probed.cli("probe", probed.spec, "-q", "-o", output).code == 0
    assert load_spec(output).spec.folder == str(probed.cli.folder)


def test_a_flag_beats_the_environment_which_beats_the_spec(cli: Cli, spec_file: Callable[..., Path]) -> None:
    spec = spec_file()
    environment = {"OOMTUNE_MEMORY_LIMIT": "20MiB"}
    one = ("--time-limit", "0.001s", "--json")  # no trial has to run to show the limit
    assert cli("probe", spec, *one, env=environment).document["memory"]["limit_bytes"] == 20 * 1024**2
    ran = cli("probe", spec, *one, "--memory-limit", "22MiB", env=environment)
    assert ran.document["memory"]["limit_bytes"] == 22 * 1024**2
    ran = cli("probe", spec, *one, "--memory-limit", "21MiB", env={"OOMTUNE_LIKE": "T4"})
    assert ran.document["memory"]["limit_bytes"] == 21 * 1024**2
    ran = cli("probe", spec, *one, "--set", "device.headroom=0.25")
    assert ran.document["memory"]["budget_bytes"] == 18 * 1024**2


def test_an_effective_batch_size_is_kept_by_accumulation(cli: Cli, spec_file: Callable[..., Path]) -> None:
    spec = spec_file(training__effective_batch_size=4000, search__batch_size=[100, 500])
    ran = cli("probe", spec, "--json")
    assert ran.code == 0, ran.err
    tuned = yaml.safe_load((cli.folder / "model.tuned.yaml").read_text())["tuned"]
    assert tuned["batch_size"] * tuned["gradient_accumulation_steps"] == tuned["effective_batch_size"] == 4000


SEQUENCES = {
    "model__layers": [
        {"Input": {"shape": ["sequence_length", 8]}},
        {"Conv1D": {"filters": 64, "kernel_size": 3, "padding": "same"}},
        "GlobalAveragePooling1D",
        {"Dense": {"units": 1}},
    ],
    "dataset__synthetic__inputs": {"shape": ["sequence_length", 8], "dtype": "float32"},
    "search__sequence_length": [32, 64, 128],
    "search__batch_size": {"min": 1, "max": 4096},
    "device__memory_limit": "16MiB",
}


@pytest.mark.parametrize("objective", ["tokens", "batch_size", "sequence_length", "throughput"])
def test_each_objective_is_met(cli: Cli, spec_file: Callable[..., Path], objective: str) -> None:
    ran = cli("probe", spec_file(**SEQUENCES), "--objective", objective, "--json")
    assert ran.code == 0, ran.err
    best = ran.document["best"]
    trials = ran.document["trials"]
    failed = [trial["candidate"] for trial in trials if trial["outcome"] != "fits"]
    fitting = [
        trial["candidate"]
        for trial in trials
        if trial["outcome"] == "fits" and not trial["points"] and trial["candidate"] not in failed
    ]
    match objective:
        case "tokens":
            most = max(each["batch_size"] * each["sequence_length"] for each in fitting)
            assert best["batch_size"] * best["sequence_length"] >= most * 0.95
        case "batch_size":
            assert best["batch_size"] == max(each["batch_size"] for each in fitting)
            assert best["sequence_length"] == 32
        case "sequence_length":
            assert best["sequence_length"] == 128
        case _:
            assert best["sequence_length"] == 32


def test_the_python_api_returns_and_raises_what_the_command_prints(probed: Probed) -> None:
    import oomtune

    with pytest.raises(OomtuneError, match="no such file"):
        oomtune.probe(probed.cli.folder / "none.yaml")
    with pytest.raises(OomtuneError, match="no GPU is visible"):
        oomtune.probe(probed.spec, device="gpu", output=probed.cli.folder / "api.yaml")
    with pytest.raises(OomtuneError, match="not plain data"):
        oomtune.probe({"model": Path()})


def test_the_python_api_finds_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import oomtune

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    output = tmp_path / "answer.yaml"
    result = oomtune.probe(small_spec(), objective="batch_size", settings=["search.batch_size=[8, 64]"], output=output)
    assert result.best is not None
    assert result.best.candidate.batch_size == oomtune.load_tuned(output).batch_size == 64
    with pytest.raises(OomtuneError, match="nothing fits"):
        oomtune.probe(small_spec(), memory_limit="1MiB")


def test_two_probes_of_one_spec_can_run_at_once(cli: Cli, spec_file: Callable[..., Path]) -> None:
    spec = spec_file()
    both = [cli.start("probe", spec, "--json") for _ in range(2)]
    said = [process.communicate(timeout=300) for process in both]
    ran = [Ran(process.returncode, *words) for process, words in zip(both, said, strict=True)]
    assert [each.code for each in ran] == [0, 0], [each.err for each in ran]
    ledgers = {each.document["ledger_path"] for each in ran}
    assert len(ledgers) == 2
    for path in ledgers:
        lines = Path(path).read_text().splitlines()
        numbers = [number for line in lines if (number := json.loads(line).get("number")) is not None]
        assert numbers == list(range(1, len(numbers) + 1))
