"""A probe as TensorBoard shows it: a session for every size that ran."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tensorboard.plugins.hparams import api_pb2, plugin_data_pb2

from oomtune.domain import runs_of
from oomtune.report.tensorboard import write_events
from tests.support.finished import finished, probe_spec
from tests.support.rendered import event_values


def test_every_size_that_ran_has_a_session_with_its_parameters_and_ending(tmp_path: Path) -> None:
    result = finished(probe_spec(with_data=True))
    folder = write_events(result, tmp_path)
    assert write_events(result, tmp_path) == folder  # writing it again adds nothing
    runs = runs_of(result.records)
    sessions = [path for path in folder.iterdir() if path.is_dir()]
    assert len(sessions) == len({(run.trial_number, run.candidate.batch_size) for run in runs})
    for run in runs:
        values = event_values(folder / f"trial-{run.trial_number:03d}-batch-{run.candidate.batch_size}")
        hparams = plugin_data_pb2.HParamsPluginData.FromString(
            values["_hparams_/session_start_info"].metadata.plugin_data.content
        ).session_start_info.hparams
        end = plugin_data_pb2.HParamsPluginData.FromString(
            values["_hparams_/session_end_info"].metadata.plugin_data.content
        ).session_end_info
        assert hparams["batch_size"].number_value == run.candidate.batch_size
        assert hparams["precision"].string_value == run.candidate.precision
        assert hparams["outcome"].string_value == run.kind.value
        assert (end.status == api_pb2.STATUS_SUCCESS) == run.fits


def test_all_probes_in_a_folder_list_the_same_columns(tmp_path: Path) -> None:
    """TensorBoard takes the columns from whichever probe it finds first."""
    without_lengths = probe_spec(
        search__sequence_length=None,
        model__layers=[{"Input": {"shape": [64]}}, {"Dense": {"units": 1}}],
        dataset__synthetic__inputs={"shape": [64], "dtype": "float32"},
    )
    columns = []
    for number, spec in enumerate((without_lengths, probe_spec())):
        folder = write_events(finished(spec, max_trials=2), tmp_path / str(number))
        content = event_values(folder)["_hparams_/experiment"].metadata.plugin_data.content
        experiment = plugin_data_pb2.HParamsPluginData.FromString(content).experiment
        columns.append([info.name for info in experiment.hparam_infos])
    assert columns[0] == columns[1]
    assert {"sequence_length", "optimizer", "remat"} <= set(columns[0])


def printed(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_writing_events_loads_no_tensorflow() -> None:
    code = "import sys, oomtune.report.tensorboard; print('tensorflow' in sys.modules)"
    assert printed(code) == "False"


def test_plotting_libraries_load_only_when_something_is_drawn() -> None:
    code = (
        "import sys, oomtune.commands.report, oomtune.cli.app;"
        "print([m for m in sys.modules if m in ('jinja2', 'plotly', 'tensorboard', 'numpy', 'tensorflow')])"
    )
    assert printed(code) == "[]"
