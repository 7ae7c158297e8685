"""A probe that is killed, interrupted or out of disk leaves no process behind, and the same command resumes it."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from oomtune.units import format_count
from tests.support.cli import Cli, processes_with, wait_for
from tests.support.specs import small_spec


def trials_in(cli: Cli) -> int:
    return sum(path.read_text().count('{"number"') for path in cli.ledgers())


def start_and_wait_for_a_trial(cli: Cli, spec: Path, marker: str) -> subprocess.Popen[str]:
    """Start a probe, and return it with one trial in its ledger and another one running."""
    process = cli.start("probe", spec, "--json", env={"MARKER": marker})
    wait_for(lambda: trials_in(cli) >= 1)
    # The command, its worker, and the trial that the worker forked.
    wait_for(lambda: len(processes_with(marker)) >= 3)
    return process


def started_trials(cli: Cli) -> list[str]:
    (path,) = cli.ledgers()
    records = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    return [json.dumps(record["trial"], sort_keys=True) for record in records if "trial" in record]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_stopped_probe_leaves_no_process_and_resumes_where_it_was(
    cli: Cli, spec_file: Callable[..., Path], marker: str, number: signal.Signals
) -> None:
    spec, scratch = spec_file(), cli.folder / "scratch"
    scratch.mkdir()
    cli.environment["TMPDIR"] = str(scratch)
    process = start_and_wait_for_a_trial(cli, spec, marker)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    wait_for(lambda: processes_with(marker) == [], seconds=20)
    assert list(scratch.glob("oomtune-*")) == []
    earlier = started_trials(cli)
    assert len(earlier) >= 1
    if number is signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
    else:
        assert process.returncode == 130
        assert json.loads(out)["verdict"] == "interrupted"
        assert "run the same command again to continue" in err
        assert "Traceback" not in err
    assert not (cli.folder / "model.tuned.yaml").exists()

    # To save time, only one of the three probes runs to its end. One more trial shows that the others resume.
    limit = () if number is signal.SIGKILL else ("--max-trials", "1")
    again = cli("probe", spec, "--json", *limit)
    assert again.code in ((0, 7) if limit else (0,)), again.err  # that trial may be the last
    assert f"resuming after {format_count(len(earlier), 'trial')} in the ledger" in again.err
    finished = started_trials(cli)
    assert finished[: len(earlier)] == earlier
    assert len(finished) == len(set(finished)) == len(again.document["trials"])
    assert again.document["new_trials"] == len(finished) - len(earlier)


def test_a_probe_killed_while_it_imports_tensorflow_leaves_no_process(
    cli: Cli, spec_file: Callable[..., Path], marker: str
) -> None:
    process = cli.start("probe", spec_file(), env={"MARKER": marker})
    wait_for(lambda: len(processes_with(marker)) >= 2)
    process.kill()
    process.communicate()
    wait_for(lambda: processes_with(marker) == [], seconds=20)


def test_a_killed_worker_is_an_environment_problem_and_the_ledger_survives(
    cli: Cli, spec_file: Callable[..., Path], marker: str
) -> None:
    process = start_and_wait_for_a_trial(cli, spec_file(), marker)
    worker = next(pid for pid in processes_with(marker) if _parent(pid) == process.pid)
    os.kill(worker, signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 5
    assert json.loads(out)["error"]["code"] == "worker_broken"
    assert "Traceback" not in err
    wait_for(lambda: processes_with(marker) == [], seconds=20)
    assert "resuming after" in cli("probe", cli.folder / "model.yaml", "--max-trials", "1").err


def test_a_worker_killed_between_two_trials_is_reported() -> None:
    from oomtune.errors import WorkerBroken
    from oomtune.trials.worker_host import WorkerHost, order_document

    host = WorkerHost("spawn")
    try:
        host.wait_until_ready()
        os.kill(host._process.pid, signal.SIGKILL)
        host._process.wait()
        with pytest.raises(WorkerBroken, match="ended by itself"):
            host.call(order_document("describe"), timeout_s=5)
    finally:
        host.close()


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_torn_ledger_is_repaired_with_a_notice(cli: Cli, spec_file: Callable[..., Path]) -> None:
    spec = spec_file()
    assert cli("probe", spec, "-q").code == 0
    (ledger,) = cli.ledgers()
    lines = ledger.read_bytes().splitlines(keepends=True)
    last = max(index for index, line in enumerate(lines) if b'"number"' in line)
    ledger.write_bytes(b"".join(lines[: last + 1])[:-20])
    again = cli("probe", spec, "--json")
    assert again.code == 0
    assert "was cut off and is ignored" in again.err
    assert 1 <= again.document["new_trials"] < len(again.document["trials"])


def test_a_changed_spec_starts_a_new_ledger(cli: Cli, spec_file: Callable[..., Path]) -> None:
    assert cli("probe", spec_file(), "-q", "--max-trials", "1").code == 7
    assert cli("probe", spec_file(trial__steps=2), "-q", "--max-trials", "1").code == 7
    assert len(cli.ledgers()) == 2


def small_files_only() -> None:
    """Limit the size of files, which fails writes of this process and its children like a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))


def test_a_full_disk_keeps_the_earlier_answer_and_the_ledger(cli: Cli) -> None:
    spec, tuned = cli.folder / "model.yaml", cli.folder / "model.tuned.yaml"
    spec.write_text(yaml.safe_dump(small_spec(search__batch_size=[4])))
    assert cli("probe", spec, "-q").code == 0
    before = tuned.read_bytes()
    # The tuned config of this spec exceeds the file limit; the files of a trial do not.
    spec.write_text(json.dumps(small_spec(search__batch_size=[4, *range(10**9, 10**9 + 9_000)])))
    process = cli.start("probe", spec, "--json", "--max-trials", "1", before=small_files_only)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 5, err
    assert json.loads(out)["error"]["code"] == "output_not_writable"
    assert "Traceback" not in err
    assert tuned.read_bytes() == before
    assert list(cli.folder.glob(".oomtune-*")) == []
    again = cli("probe", spec, "--json", "--max-trials", "1")
    assert (again.code, again.document["trials"][0]["number"]) == (7, 1)
    assert tuned.read_bytes() != before


def tiny_files_only() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))


def test_a_disk_without_any_room_is_reported_before_a_trial_runs(cli: Cli, spec_file: Callable[..., Path]) -> None:
    process = cli.start("probe", spec_file(), "--json", before=tiny_files_only)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 5, err
    assert json.loads(out)["exit_code"] == 5
    assert "Traceback" not in err
