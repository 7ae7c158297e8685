"""The data of the plots on the HTML page, each with a text summary for readers who can't see it.

`assets/report.js` draws them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from oomtune.domain import Aim, Lane, ProbeResult, Provenance, Run, Stage, runs_of
from oomtune.report.answer import capitalized, edge_text, length_histogram, without_length
from oomtune.report.trial_rows import Ending, ending_of
from oomtune.search.curves import Line
from oomtune.units import format_bytes, format_count, format_ms

_UNITS = (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024), ("B", 1))
_MOST_SHOWN = 4

Figure = dict[str, Any]


def figures(result: ProbeResult, lines: Mapping[Lane, Line]) -> dict[str, Figure]:
    """Return the figures by name. A figure without data is left out."""
    runs = runs_of(result.records)
    answer_runs = [run for run in runs if run.aim is Aim.ANSWER]
    timed = [run for run in answer_runs if _is_timed(run)]
    drawn = {
        "frontier": _frontier(result, answer_runs, lines),
        "trials": _trials(result, runs),
        "curve": _curve(result, [run for run in answer_runs if run.peak_bytes is not None], lines),
        "step": _step_time(result, timed),
        "throughput": _throughput(result, timed),
        "lengths": _lengths(result),
    }
    return {name: figure for name, figure in drawn.items() if figure is not None}


def memory_unit(result: ProbeResult) -> tuple[str, int]:
    """Return the name and size of the largest unit that does not exceed the limit, for all memory axes."""
    return next((name, size) for name, size in _UNITS if result.budget.limit_bytes >= size or size == 1)


def _frontier(result: ProbeResult, runs: Sequence[Run], lines: Mapping[Lane, Line]) -> Figure | None:
    """Draw the largest batch by sequence length for each precision, every run, and where the fit meets the budget."""
    if not runs:
        return None
    edges = {lane: line.edge(result.budget.budget_bytes) for lane, line in lines.items()}
    series = [
        {
            "name": name,
            "line": [
                {"x": _x(point.lane), "y": point.batch_size, "known": point.edge_known}
                for point in sorted(result.frontier, key=lambda point: point.lane.sequence_length or 0)
                if without_length(point.lane) == name
            ],
            "edge": [
                {"x": _x(lane), "y": edges[lane], "at": edge_text(edges[lane])}
                for lane in sorted(edges, key=lambda lane: lane.sequence_length or 0)
                if without_length(lane) == name
            ],
            "runs": [
                _dot(run, result, _x(run.candidate.lane), run.candidate.batch_size)
                for run in runs
                if without_length(run.candidate.lane) == name
            ],
        }
        for name in dict.fromkeys(without_length(run.candidate.lane) for run in runs)
    ]
    has_lengths = result.spec.space.sequence_lengths is not None
    return {"has_lengths": has_lengths, "series": series, "summary": _frontier_summary(result)}


def _frontier_summary(result: ProbeResult) -> str:
    if not result.frontier:
        return "No batch that ran fitted."
    known_edges = sum(point.edge_known for point in result.frontier)
    lanes = f"each of {len(result.frontier)} lanes" if len(result.frontier) > 1 else "one lane"
    rings = "" if known_edges == len(result.frontier) else " A ring marks lanes where a larger batch may fit."
    return (
        f"The largest batch that ran and fitted in {lanes}; the edge is known in {known_edges}.{rings} "
        "The table below lists them."
    )


def _trials(result: ProbeResult, runs: Iterable[Run]) -> Figure | None:
    """Draw the peak of each trial against the limit. Leave out larger sizes that ran after a trial's candidate."""
    by_trial: dict[int, list[Run]] = {}
    for run in runs:
        if run.provenance is not Provenance.AFTER_NEIGHBOUR:
            by_trial.setdefault(run.trial_number, []).append(run)
    if not by_trial:
        return None
    bars = [
        {
            "number": number,
            "peak_bytes": max((run.peak_bytes for run in trial_runs if run.peak_bytes is not None), default=None),
            "ending": ending_of(trial_runs[-1]).key,
            "text": _hover_lines(trial_runs[-1], result),
        }
        for number, trial_runs in by_trial.items()
    ]
    counts = [(sum(bar["ending"] == ending.key for bar in bars), ending.words) for ending in Ending]
    summary = (
        f"{format_count(len(bars), 'trial')}: {', '.join(f'{count} {words}' for count, words in counts if count)}. "
        f"The limit is {format_bytes(result.budget.limit_bytes)}, the budget "
        f"{format_bytes(result.budget.budget_bytes)}. "
        "A trial that ran out of memory at an unknown peak is drawn at the limit."
    )
    return {"bars": bars, "summary": summary}


def _curve(result: ProbeResult, runs: Iterable[Run], lines: Mapping[Lane, Line]) -> Figure | None:
    """Draw peak memory against batch size in each lane, with the fitted line."""
    lanes: list[Figure] = []
    fit_sentence = ""
    for lane, lane_runs in _by_lane(result, runs).items():
        line = lines.get(lane)
        fit: Figure | None = None
        if line is not None:
            edge = line.edge(result.budget.budget_bytes)
            last = max(edge, *(run.candidate.batch_size for run in lane_runs))
            fit = {
                # A line that is steep at its end would begin below zero.
                "from": [max(0.0, -line.fixed_bytes / line.bytes_per_sample), max(0.0, line.fixed_bytes)],
                "to": [last, line.fixed_bytes + line.bytes_per_sample * last],
            }
            fit_sentence = fit_sentence or (
                f"{capitalized(str(lane))}: the line is {format_bytes(line.fixed_bytes)} + batch × "
                f"{format_bytes(line.bytes_per_sample)}, and meets the budget at batch {edge_text(edge)}."
            )
        dots = [_dot(run, result, run.candidate.batch_size, run.peak_bytes) for run in lane_runs]
        lanes.append({"name": str(lane), "shown": len(lanes) < _MOST_SHOWN, "runs": dots, "fit": fit})
    if not lanes:
        return None
    fit_sentence = fit_sentence or "Memory did not rise enough to fit a line."
    return {"lanes": lanes, "summary": f"Peak memory of each size that ran. {fit_sentence}{_hidden_lanes(lanes)}"}


def _step_time(result: ProbeResult, runs: Sequence[Run]) -> Figure | None:
    """Draw the time of a step against batch size."""
    lanes = _timed_lanes(result, runs, lambda run: run.step_ms)
    if not lanes:
        return None
    first, last = lanes[0]["runs"][0], lanes[0]["runs"][-1]
    summary = (
        f"{capitalized(lanes[0]['name'])}: {format_ms(first['step_ms'])} a step at batch {first['x']}, "
        f"{format_ms(last['step_ms'])} at batch {last['x']}."
    )
    return {"lanes": lanes, "summary": f"{summary}{_hidden_lanes(lanes)}"}


def _throughput(result: ProbeResult, runs: Sequence[Run]) -> Figure | None:
    """Draw samples a second against batch size."""
    lanes = _timed_lanes(result, runs, lambda run: run.samples_per_second)
    if not lanes:
        return None
    fastest = max(runs, key=lambda run: run.samples_per_second or 0.0)
    summary = (
        f"The fastest run: {fastest.candidate}, {fastest.samples_per_second:,.0f} samples a second "
        f"at {format_ms(fastest.step_ms or 0.0)} a step."
    )
    return {"lanes": lanes, "summary": f"{summary}{_hidden_lanes(lanes)}"}


def _timed_lanes(result: ProbeResult, runs: Iterable[Run], height: Callable[[Run], float | None]) -> list[Figure]:
    lanes: list[Figure] = []
    for lane, lane_runs in _by_lane(result, runs).items():
        points = [
            _dot(run, result, run.candidate.batch_size, height(run)) | {"step_ms": run.step_ms}
            for run in sorted(lane_runs, key=lambda run: (run.candidate.batch_size, run.trial_number))
        ]
        lanes.append({"name": str(lane), "shown": len(lanes) < _MOST_SHOWN, "runs": points})
    return lanes


def _hidden_lanes(lanes: Sequence[Figure]) -> str:
    """Return a sentence about lanes that the plot leaves out at first; empty if it shows all."""
    shown = sum(lane["shown"] for lane in lanes)
    return "" if shown == len(lanes) else f" At first {shown} of {len(lanes)} lanes are drawn; a button adds the rest."


def _lengths(result: ProbeResult) -> Figure | None:
    """Draw a histogram of sample lengths, with the boundaries of buckets."""
    scan = result.spec.scan
    if scan is None or not scan.lengths:
        return None
    bars = [{"from": first, "to": last, "samples": samples} for first, last, samples in length_histogram(scan.lengths)]
    buckets = result.buckets
    pairs = [] if buckets is None else list(zip(buckets.boundaries, buckets.batch_sizes, strict=True))
    bucket_words = "".join(f"; batch {size} up to {length}" for length, size in pairs)
    summary = (
        f"Samples are {scan.lengths[0][0]} to {scan.lengths[-1][0]} long, half of them at most {scan.percentile(50)} "
        f"and 95 % at most {scan.percentile(95)}{bucket_words}."
    )
    return {
        "bars": bars,
        "buckets": [{"boundary": length, "batch_size": size} for length, size in pairs],
        "summary": summary,
    }


def _by_lane(result: ProbeResult, runs: Iterable[Run]) -> dict[Lane, list[Run]]:
    """Group runs by lane, the winner's lane first."""
    lanes: dict[Lane, list[Run]] = {}
    for run in runs:
        lanes.setdefault(run.candidate.lane, []).append(run)
    winner = result.best.candidate.lane if result.best else None
    return dict(sorted(lanes.items(), key=lambda entry: entry[0] != winner))


def _is_timed(run: Run) -> bool:
    """Return True if every step ran. Steps before a failure are not comparable."""
    return run.stage is Stage.DONE and run.samples_per_second is not None


def _x(lane: Lane) -> int | str:
    return without_length(lane) if lane.sequence_length is None else lane.sequence_length


def _dot(run: Run, result: ProbeResult, x: float | str, y: float | None) -> Figure:
    return {"x": x, "y": y, "ending": ending_of(run).key, "text": _hover_lines(run, result)}


def _hover_lines(run: Run, result: ProbeResult) -> list[str]:
    ending = ending_of(run)
    lines = [f"trial {run.trial_number}, {run.purpose}", str(run.candidate), f"{ending.sign} {ending.words}"]
    if run.peak_bytes is not None:
        share = run.peak_bytes / result.budget.limit_bytes
        lines.append(f"peak {format_bytes(run.peak_bytes)}, {share:.0%} of the limit")
    if run.step_ms is not None and run.samples_per_second is not None:
        lines.append(f"{format_ms(run.step_ms)} a step, {run.samples_per_second:,.0f} samples a second")
    return lines
