"""A probe as TensorBoard HParams: one session for each size that ran. Writing it needs no TensorFlow."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path

from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2, types_pb2
from tensorboard.plugins.hparams import api_pb2, plugin_data_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

from oomtune.domain import ProbeResult, Run, runs_of

_METRICS = ("peak_bytes", "step_ms", "samples_per_second")
_TEXTS = ("precision", "remat", "optimizer", "purpose", "outcome")
_NUMBERS = ("batch_size", "sequence_length", "trial")


def write_events(result: ProbeResult, logdir: Path) -> Path:
    """Write the probe to its own folder in `logdir`, and return the folder. The same probe reuses its folder."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", result.spec.name)[:60].strip(".-") or "probe"
    ended_s = _unix_seconds(result.probed_at)
    folder = logdir / f"{name}-{ended_s:.0f}"
    _write(folder, ended_s, [_hparams_value("experiment", experiment=_experiment(result, ended_s))])
    for run in runs_of(result.records):
        session = folder / f"trial-{run.trial_number:03d}-batch-{run.candidate.batch_size}"
        status = api_pb2.STATUS_SUCCESS if run.fits else api_pb2.STATUS_FAILURE
        start = plugin_data_pb2.SessionStartInfo(start_time_secs=ended_s, group_name=f"{folder.name}/{session.name}")
        for key, value in _hparams(run).items():
            if isinstance(value, str):
                start.hparams[key].string_value = value
            else:
                start.hparams[key].number_value = value
        end = plugin_data_pb2.SessionEndInfo(status=status, end_time_secs=ended_s + (run.duration_s or 0.0))
        values = [
            _hparams_value("session_start_info", session_start_info=start),
            *(_scalar(metric, value) for metric in _METRICS if (value := getattr(run, metric)) is not None),
            _hparams_value("session_end_info", session_end_info=end),
        ]
        _write(session, ended_s, values)
    return folder


def _hparams(run: Run) -> dict[str, str | float]:
    """Return the settings of the run. Leave out settings without a value."""
    candidate = run.candidate
    values: dict[str, str | float | None] = {
        "batch_size": candidate.batch_size,
        "sequence_length": candidate.sequence_length,
        "precision": candidate.precision,
        "remat": str(candidate.remat),
        "optimizer": candidate.optimizer,
        "purpose": run.purpose.value,
        "outcome": run.kind.value,
        "trial": run.trial_number,
    }
    return {key: value for key, value in values.items() if value is not None}


def _experiment(result: ProbeResult, ended_s: float) -> api_pb2.Experiment:
    # TensorBoard takes the columns for a whole folder from its first probe, so list all possible columns in each.
    kinds = [(name, api_pb2.DATA_TYPE_FLOAT64) for name in _NUMBERS] + [(n, api_pb2.DATA_TYPE_STRING) for n in _TEXTS]
    return api_pb2.Experiment(
        name=result.spec.name,
        description=f"limit {result.budget.limit_bytes} bytes, budget {result.budget.budget_bytes} bytes",
        time_created_secs=ended_s,
        hparam_infos=[api_pb2.HParamInfo(name=name, type=kind) for name, kind in kinds],
        metric_infos=[api_pb2.MetricInfo(name=api_pb2.MetricName(tag=tag)) for tag in _METRICS],
    )


def _hparams_value(name: str, **content: object) -> summary_pb2.Summary.Value:
    data = plugin_data_pb2.HParamsPluginData(version=0, **content).SerializeToString()
    plugin = summary_pb2.SummaryMetadata.PluginData(plugin_name="hparams", content=data)
    # The metadata holds the content, but a value must also have a tensor.
    empty = tensor_shape_pb2.TensorShapeProto(dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=0)])
    return summary_pb2.Summary.Value(
        tag=f"_hparams_/{name}",
        metadata=summary_pb2.SummaryMetadata(plugin_data=plugin),
        tensor=tensor_pb2.TensorProto(dtype=types_pb2.DT_FLOAT, tensor_shape=empty),
    )


def _scalar(tag: str, value: float) -> summary_pb2.Summary.Value:
    # Use a double: the 24 bits of a float are too few for peaks in bytes.
    tensor = tensor_pb2.TensorProto(
        dtype=types_pb2.DT_DOUBLE, tensor_shape=tensor_shape_pb2.TensorShapeProto(), double_val=[value]
    )
    plugin = summary_pb2.SummaryMetadata.PluginData(plugin_name="scalars")
    metadata = summary_pb2.SummaryMetadata(plugin_data=plugin, data_class=summary_pb2.DATA_CLASS_SCALAR)
    return summary_pb2.Summary.Value(tag=tag, metadata=metadata, tensor=tensor)


def _write(folder: Path, at_s: float, values: Iterable[summary_pb2.Summary.Value]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"events.out.tfevents.{at_s:.0f}.oomtune").open("wb") as file:
        writer = RecordWriter(file)
        writer.write(event_pb2.Event(wall_time=at_s, file_version="brain.Event:2").SerializeToString())
        for value in values:
            event = event_pb2.Event(wall_time=at_s, step=0, summary=summary_pb2.Summary(value=[value]))
            writer.write(event.SerializeToString())


def _unix_seconds(at: str) -> float:
    if not at:
        return 0.0
    return datetime.strptime(at, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc).timestamp()
