"""A probe as one self-contained HTML file. Its security policy allows no network access."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import json
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from oomtune import __version__
from oomtune.domain import Explanation, ProbeResult, RematMode, runs_of
from oomtune.report import PAGE_MARK
from oomtune.report.answer import (
    answer_rows,
    chosen_settings,
    edge_text,
    finding_rows,
    fitted_lines,
    lane_rows,
    length_rows,
    paste_lines,
    verdict_words,
)
from oomtune.report.explanation import (
    anatomy_notes,
    before_row,
    explanation_title,
    growth_sentences,
    layer_rows,
    part_rows,
    peak_sentence,
    remedy_notes,
    remedy_rows,
)
from oomtune.report.figures import Figure, figures, memory_unit
from oomtune.report.trial_rows import Ending, ending_of, trial_rows
from oomtune.units import format_bytes, format_ms

_TITLES = {
    "frontier": "The frontier",
    "curve": "The memory curve",
    "trials": "Memory of each trial",
    "step": "Step time",
    "throughput": "Throughput",
    "lengths": "Sample lengths",
}


def probe_page(result: ProbeResult, *, tuned_text: str = "", explanation: Explanation | None = None) -> str:
    """Return the page. `tuned_text` is the tuned config as the probe wrote it."""
    lines = fitted_lines(result)
    drawn = figures(result, lines)
    hero = chosen_settings(result.best.candidate) if result.best else []
    endings = {ending_of(run) for run in runs_of(result.records)}
    parts = None if explanation is None else _explanation(explanation)
    plots = drawn if parts is None else {**drawn, "parts": parts["figure"]}
    script, library = _asset("report.js"), _plotly()
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            version=__version__,
            generator=PAGE_MARK,
            policy=_policy(script, library),
            style=_asset("report.css"),
            script=script,
            library=library,
            data=_inside_script(_plot_data(result, plots)),
            result=result,
            verdict=verdict_words(result),
            hero=hero,
            gauge=_gauge(result),
            rows=[row for row in answer_rows(result) if row not in hero],
            lanes=lane_rows(result, lines),
            findings=finding_rows(result),
            endings=[ending for ending in Ending if ending in endings],
            table=_trial_table(result),
            lengths=length_rows(result),
            environment=_environment_rows(result),
            paste="\n".join(paste_lines(result)),
            titles=_TITLES,
            summaries={name: figure["summary"] for name, figure in drawn.items()},
            lane_counts={name: _hideable_lanes(figure) for name, figure in drawn.items()},
            tuned_text=tuned_text,
            explanation=parts,
        )
    )


def _hideable_lanes(figure: Figure) -> int:
    """Return how many lanes a figure has if it leaves some out at first, and 0 otherwise."""
    lanes = figure.get("lanes", ())
    return 0 if all(lane["shown"] for lane in lanes) else len(lanes)


def _plot_data(result: ProbeResult, plots: dict[str, Figure]) -> dict[str, Any]:
    """Return the data for the page's script."""
    unit, unit_bytes = memory_unit(result)
    return {
        "limit_bytes": result.budget.limit_bytes,
        "budget_bytes": result.budget.budget_bytes,
        "unit": {"name": unit, "bytes": unit_bytes},
        "endings": {ending.key: ending.sign for ending in Ending},
        "figures": {
            name: {key: value for key, value in plot.items() if key != "summary"} for name, plot in plots.items()
        },
    }


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("oomtune.report", "assets"),
        autoescape=select_autoescape(enabled_extensions=("html.j2",), default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"bytes": format_bytes, "ms": format_ms, "share": _share, "edge": edge_text}
    return environment


def _share(share: float, digits: int = 0) -> str:
    return f"{share:.{digits}%}"


@cache
def _asset(name: str) -> str:
    return resources.files("oomtune.report").joinpath("assets").joinpath(name).read_text(encoding="utf-8")


@cache
def _plotly() -> str:
    """Read plotly.js from the Python package without importing the package."""
    path = importlib.metadata.distribution("plotly").locate_file("plotly/package_data/plotly.min.js")
    with open(str(path), encoding="utf-8") as file:  # noqa: PTH123 - locate_file does not always return a Path
        return _without_end_tags(file.read())


def _without_end_tags(script: str) -> str:
    """Escape text that would end the script element early or hide its end tag."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _policy(*scripts: str) -> str:
    """Return a content security policy that allows nothing from the network and no scripts but these."""
    digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts)
    hashes = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _inside_script(data: Any) -> str:
    """Return JSON that can't break out of a script element."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _gauge(result: ProbeResult) -> dict[str, float] | None:
    """Return how full the limit is and where the headroom begins, in percent."""
    if result.best is None:
        return None
    limit = result.budget.limit_bytes
    return {
        "peak": round(min(100.0, 100 * result.best.peak_bytes / limit), 2),
        "budget": round(100 * result.budget.budget_bytes / limit, 2),
    }


def _trial_table(result: ProbeResult) -> dict[str, Any]:
    """Return the trials, and which optional columns to show."""
    rows = trial_rows(result)
    lanes = {row.run.candidate.lane for row in rows}
    return {
        "rows": rows,
        "lengths": any(lane.sequence_length is not None for lane in lanes),
        "remats": any(lane.remat is not RematMode.NONE for lane in lanes),
        "optimizers": any(lane.optimizer is not None for lane in lanes),
        "winner": result.best.confirmed_by.number if result.best and result.best.confirmed_by else None,
    }


def _environment_rows(result: ProbeResult) -> list[tuple[str, str]]:
    device, budget = result.device, result.budget
    stand_in = f", standing in for a {device.stands_in_for}" if device.stands_in_for else ""
    rows = [
        ("device", f"{device.kind.upper()} {device.name}{stand_in}"),
        ("limit", f"{format_bytes(budget.limit_bytes)} ({budget.limit_bytes:,} bytes)"),
        ("budget", f"{format_bytes(budget.budget_bytes)}, {budget.origin}"),
        ("objective", str(result.spec.space.objective)),
    ]
    for name, value in result.environment.items():
        words = ", ".join(f"{key}={entry}" for key, entry in value.items()) if isinstance(value, dict) else str(value)
        rows.append((name.replace("_", " "), words))
    paths = (("spec's folder", result.spec.folder), ("tuned config", result.tuned_path), ("ledger", result.ledger_path))
    rows += [(name, path) for name, path in paths if path]
    return rows + [("note", notice) for notice in result.notices]


def _explanation(explanation: Explanation) -> dict[str, Any]:
    parts = part_rows(explanation)
    return {
        "title": explanation_title(explanation),
        "peak": peak_sentence(explanation),
        "parts": parts,
        "layers": layer_rows(explanation),
        "notes": [*explanation.notices, *anatomy_notes(explanation), *growth_sentences(explanation)],
        "remedies": [before_row(explanation), *remedy_rows(explanation)],
        "remedy_notes": remedy_notes(explanation),
        "figure": {
            "bars": [
                {
                    "name": part.name,
                    "peak_bytes": part.size_bytes,
                    "text": [part.name, f"{part.size}, {part.share:.0%}", part.origin],
                }
                for part in parts
            ],
            "summary": f"What memory holds at the peak: {'; '.join(f'{part.name} {part.size}' for part in parts)}.",
        },
    }
