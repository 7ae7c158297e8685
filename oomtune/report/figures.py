"""What the plots of a report show, as plain data: which points, which lines, and in words for who can't see them.

How they look is decided where they are drawn, in `assets/report.js`, as it depends on the reader's screen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from oomtune.domain import Aim, Lane, ProbeResult, Provenance, Run, Stage, runs_of
from oomtune.report.endings import Ending, ending_of
from oomtune.report.lanes import apart_from_length, edge_words, fitted_lines
from oomtune.report.model import length_histogram
from oomtune.report.verdict import capital
from oomtune.units import format_bytes, format_count, format_ms

_UNITS = (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024), ("B", 1))
_MOST_SHOWN = 4

Figure = dict[str, Any]


def figures(result: ProbeResult) -> dict[str, Figure]:
    """Every figure that the probe has something to show in, by its name."""
    made = {
        "frontier": frontier(result),
        "trials": trials(result),
        "curve": curve(result),
        "step": step_time(result),
        "throughput": throughput(result),
        "lengths": lengths(result),
    }
    return {name: figure for name, figure in made.items() if figure is not None}


def memory_unit(result: ProbeResult) -> tuple[str, int]:
    """The unit of every axis of memory: the one in which the limit is read."""
    return next((name, size) for name, size in _UNITS if result.budget.limit_bytes >= size or size == 1)


def frontier(result: ProbeResult) -> Figure | None:
    """The largest batch by sequence length, a line for each precision; each run; and where the budget would be met."""
    ran = [run for run in runs_of(result.records) if run.aim is Aim.ANSWER]
    if not ran:
        return None
    has_lengths = result.spec.space.sequence_lengths is not None
    edges = {lane: line.edge(result.budget.budget_bytes) for lane, line in fitted_lines(result).items()}
    series = [
        {
            "name": name,
            "line": [
                {"x": _x(point.lane), "y": point.batch_size, "known": point.edge_known}
                for point in sorted(result.frontier, key=lambda point: point.lane.sequence_length or 0)
                if apart_from_length(point.lane) == name
            ],
            "edge": [
                {"x": _x(lane), "y": edges[lane], "at": edge_words(edges[lane])}
                for lane in sorted(edges, key=lambda lane: lane.sequence_length or 0)
                if apart_from_length(lane) == name
            ],
            "runs": [
                _dot(run, result, _x(run.candidate.lane), run.candidate.batch_size)
                for run in ran
                if apart_from_length(run.candidate.lane) == name
            ],
        }
        for name in _names(run.candidate.lane for run in ran)
    ]
    return {"has_lengths": has_lengths, "series": series, "summary": _frontier_words(result)}


def _frontier_words(result: ProbeResult) -> str:
    if not result.frontier:
        return "Nothing that was run fitted."
    known = sum(point.edge_known for point in result.frontier)
    lanes = f"{len(result.frontier)} lanes" if len(result.frontier) > 1 else "one lane"
    rings = "" if known == len(result.frontier) else " A ring is around those where a larger batch may fit."
    return (
        f"The largest batch that ran and fitted in {lanes}; the edge is known in {known}.{rings} "
        "The table below has each."
    )


def trials(result: ProbeResult) -> Figure | None:
    """The peak of each trial against the limit."""
    if not result.records:
        return None
    last: dict[int, list[Run]] = {}
    for run in runs_of(result.records):
        if run.provenance is not Provenance.AFTER_NEIGHBOUR:
            last.setdefault(run.trial_number, []).append(run)
    bars = []
    for number, ran in last.items():
        known = [run for run in ran if run.peak_bytes is not None]
        ending = ending_of(ran[-1])
        bars.append(
            {
                "number": number,
                "peak_bytes": max((run.peak_bytes or 0 for run in known), default=None),
                "ending": ending.key,
                "text": _hover(ran[-1], result),
            }
        )
    budget = result.budget
    ended = [(ending.words, sum(bar["ending"] == ending.key for bar in bars)) for ending in Ending]
    counts = ", ".join(f"{many} {words}" for words, many in ended if many)
    summary = (
        f"{format_count(len(bars), 'trial')} by how they ended: {counts}. "
        f"The limit is {format_bytes(budget.limit_bytes)}, the budget {format_bytes(budget.budget_bytes)}. "
        "Out of memory is drawn at the limit where the peak is not known."
    )
    return {"bars": bars, "summary": summary}


def curve(result: ProbeResult) -> Figure | None:
    """Peak memory against batch size in each lane, and the line that was fitted to it."""
    budget_bytes = result.budget.budget_bytes
    lines = fitted_lines(result)
    by_lane = _by_lane(result, lambda run: run.peak_bytes is not None)
    lanes: list[Figure] = []
    said = ""
    for lane in _winner_first(result, by_lane):
        ran = by_lane[lane]
        line = lines.get(lane)
        fit: Figure | None = None
        if line is not None:
            edge = line.edge(budget_bytes)
            last = max(edge, *(run.candidate.batch_size for run in ran))
            fit = {
                # A line that was steep at its end would begin below nothing.
                "from": [max(0.0, -line.fixed_bytes / line.bytes_per_sample), max(0.0, line.fixed_bytes)],
                "to": [last, line.fixed_bytes + line.bytes_per_sample * last],
            }
            said = said or (
                f"{capital(str(lane))}: the line is {format_bytes(line.fixed_bytes)} + batch × "
                f"{format_bytes(line.bytes_per_sample)}, and meets the budget at batch {edge_words(edge)}."
            )
        dots = [_dot(run, result, run.candidate.batch_size, run.peak_bytes) for run in ran]
        lanes.append({"name": str(lane), "shown": len(lanes) < _MOST_SHOWN, "runs": dots, "fit": fit})
    if not lanes:
        return None
    said = said or "Memory did not rise enough to fit a line to it."
    return {"lanes": lanes, "summary": f"Peak memory of each size that ran. {said}{_left_out(lanes)}"}


def step_time(result: ProbeResult) -> Figure | None:
    """How long a step takes, against batch size."""
    lanes = _timed(result, lambda run: run.step_ms)
    if not lanes:
        return None
    first, last = lanes[0]["runs"][0], lanes[0]["runs"][-1]
    summary = (
        f"{capital(lanes[0]['name'])}: {format_ms(first['step_ms'])} a step at batch {first['x']}, "
        f"{format_ms(last['step_ms'])} at batch {last['x']}."
    )
    return {"lanes": lanes, "summary": f"{summary}{_left_out(lanes)}"}


def throughput(result: ProbeResult) -> Figure | None:
    """Samples a second, against batch size."""
    lanes = _timed(result, lambda run: run.samples_per_second)
    if not lanes:
        return None
    timed = [run for ran in _by_lane(result, _is_timed).values() for run in ran]
    fastest = max(timed, key=lambda run: run.samples_per_second or 0.0)
    summary = (
        f"The fastest that ran: {fastest.candidate}, {fastest.samples_per_second:,.0f} samples a second "
        f"at {format_ms(fastest.step_ms or 0.0)} a step."
    )
    return {"lanes": lanes, "summary": f"{summary}{_left_out(lanes)}"}


def _left_out(lanes: Sequence[Figure]) -> str:
    """What a reader is told of lanes that are not drawn at first."""
    shown = sum(lane["shown"] for lane in lanes)
    return (
        "" if shown == len(lanes) else f" At first {shown} of {len(lanes)} lanes are drawn, the others when asked for."
    )


def _timed(result: ProbeResult, height: Callable[[Run], float | None]) -> list[Figure]:
    """The lanes with what was timed in them, by batch size, each as high as it says."""
    by_lane = _by_lane(result, _is_timed)
    lanes: list[Figure] = []
    for lane in _winner_first(result, by_lane):
        points = [
            _dot(run, result, run.candidate.batch_size, height(run)) | {"step_ms": run.step_ms}
            for run in sorted(by_lane[lane], key=lambda run: (run.candidate.batch_size, run.trial_number))
        ]
        lanes.append({"name": str(lane), "shown": len(lanes) < _MOST_SHOWN, "runs": points})
    return lanes


def lengths(result: ProbeResult) -> Figure | None:
    """How long the samples are, and where buckets begin and end."""
    scan = result.spec.scan
    if scan is None or not scan.lengths:
        return None
    bars = [{"from": first, "to": last, "samples": many} for first, last, many in length_histogram(scan.lengths)]
    found = result.buckets
    pairs = [] if found is None else list(zip(found.boundaries, found.batch_sizes, strict=True))
    bucket_words = "".join(f"; batch {size} up to {length}" for length, size in pairs)
    summary = (
        f"Lengths {scan.lengths[0][0]} to {scan.lengths[-1][0]}, half of the samples up to {scan.percentile(50)} "
        f"and 95 % up to {scan.percentile(95)}{bucket_words}."
    )
    return {
        "bars": bars,
        "buckets": [{"boundary": length, "batch_size": size} for length, size in pairs],
        "summary": summary,
    }


def _by_lane(result: ProbeResult, wanted: Callable[[Run], bool]) -> dict[Lane, list[Run]]:
    found: dict[Lane, list[Run]] = {}
    for run in runs_of(result.records):
        if run.aim is Aim.ANSWER and wanted(run):
            found.setdefault(run.candidate.lane, []).append(run)
    return found


def _is_timed(run: Run) -> bool:
    """Did every step run? Those before a failure are not timed as others are."""
    return run.stage is Stage.DONE and run.samples_per_second is not None


def _winner_first(result: ProbeResult, lanes: Iterable[Lane]) -> list[Lane]:
    winner = result.best.candidate.lane if result.best else None
    return sorted(lanes, key=lambda lane: lane != winner)


def _names(lanes: Iterable[Lane]) -> Sequence[str]:
    return list(dict.fromkeys(map(apart_from_length, lanes)))


def _x(lane: Lane) -> int | str:
    return apart_from_length(lane) if lane.sequence_length is None else lane.sequence_length


def _dot(run: Run, result: ProbeResult, x: float | str, y: float | None) -> Figure:
    return {"x": x, "y": y, "ending": ending_of(run).key, "text": _hover(run, result)}


def _hover(run: Run, result: ProbeResult) -> list[str]:
    lines = [
        f"trial {run.trial_number}, {run.purpose}",
        str(run.candidate),
        f"{ending_of(run).sign} {ending_of(run).words}",
    ]
    if run.peak_bytes is not None:
        share = run.peak_bytes / result.budget.limit_bytes
        lines.append(f"peak {format_bytes(run.peak_bytes)}, {share:.0%} of the limit")
    if run.step_ms is not None and run.samples_per_second is not None:
        lines.append(f"{format_ms(run.step_ms)} a step, {run.samples_per_second:,.0f} samples a second")
    return lines
