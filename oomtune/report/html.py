"""A probe as one HTML file that opens offline: everything it needs is inside, and it may not ask the network."""

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
from oomtune.report import explanation as explained
from oomtune.report.endings import Ending, ending_of
from oomtune.report.figures import Figure, figures, memory_unit
from oomtune.report.findings import finding_rows
from oomtune.report.lanes import edge_words, lane_entries
from oomtune.report.marks import GENERATOR
from oomtune.report.model import answer_rows, length_rows, paste_lines
from oomtune.report.trial_entries import TrialEntry, trial_entries
from oomtune.report.verdict import verdict_words
from oomtune.units import format_bytes, format_ms

_TITLES = {
    "frontier": "The frontier",
    "curve": "The memory curve",
    "trials": "Memory of each trial",
    "step": "Step time",
    "throughput": "Throughput",
    "lengths": "How long samples are",
}


def html_page(result: ProbeResult, *, tuned_text: str = "", explanation: Explanation | None = None) -> str:
    """The whole page. `tuned_text` is the tuned config as it was written."""
    drawn = figures(result)
    explained_parts = None if explanation is None else _explanation(explanation)
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            **_embedded(_data(result, drawn, explained_parts)),
            **_shown(result),
            titles=_TITLES,
            summaries={name: figure["summary"] for name, figure in drawn.items()},
            lane_counts={name: len(figure["lanes"]) if _leaves_out(figure) else 0 for name, figure in drawn.items()},
            tuned_text=tuned_text,
            explanation=explained_parts,
        )
    )


def _leaves_out(figure: Figure) -> bool:
    """Are there lanes that are only drawn when they are asked for?"""
    return any(not lane["shown"] for lane in figure.get("lanes", ()))


def _embedded(data: dict[str, Any]) -> dict[str, str]:
    """What makes the page stand alone: style, scripts, their data, and the policy that lets nothing else in."""
    script, library = _asset("report.js"), _plotly()
    return {
        "version": __version__,
        "generator": GENERATOR,
        "policy": _policy(script, library),
        "style": _asset("report.css"),
        "script": script,
        "library": library,
        "data": _inside_script(data),
    }


def _data(result: ProbeResult, drawn: dict[str, Figure], explained_parts: dict[str, Any] | None) -> dict[str, Any]:
    """What the plots are drawn from."""
    plots = drawn if explained_parts is None else {**drawn, "parts": explained_parts["figure"]}
    return {
        "limit_bytes": result.budget.limit_bytes,
        "budget_bytes": result.budget.budget_bytes,
        "unit": dict(zip(("name", "bytes"), memory_unit(result), strict=True)),
        "endings": {ending.key: ending.sign for ending in Ending},
        "figures": {
            name: {key: value for key, value in plot.items() if key != "summary"} for name, plot in plots.items()
        },
    }


def _shown(result: ProbeResult) -> dict[str, Any]:
    """What the page says of the probe in words and tables."""
    hero = _hero(result)
    return {
        "result": result,
        "verdict": verdict_words(result),
        "hero": hero,
        "gauge": _gauge(result),
        "rows": [row for row in answer_rows(result) if row not in hero],
        "lanes": lane_entries(result),
        "findings": finding_rows(result),
        "endings": [ending for ending in Ending if any(ending_of(run) is ending for run in runs_of(result.records))],
        "table": _table(result),
        "lengths": length_rows(result),
        "environment": _environment_rows(result),
        "paste": "\n".join(paste_lines(result)),
    }


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("oomtune.report", "assets"),
        autoescape=select_autoescape(enabled_extensions=("html.j2",), default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"bytes": format_bytes, "ms": format_ms, "share": _share, "edge": edge_words}
    return environment


def _share(share: float, digits: int = 0) -> str:
    return f"{share:.{digits}%}"


@cache
def _asset(name: str) -> str:
    return resources.files("oomtune.report").joinpath("assets").joinpath(name).read_text(encoding="utf-8")


@cache
def _plotly() -> str:
    """plotly.js out of the Python package, which need not be imported for it."""
    path = importlib.metadata.distribution("plotly").locate_file("plotly/package_data/plotly.min.js")
    with open(str(path), encoding="utf-8") as file:  # noqa: PTH123 - what locate_file gives is not always a Path
        return _closed_once(file.read())


def _closed_once(script: str) -> str:
    """A script that holds no end tag, nor what would hide the real one."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _policy(*scripts: str) -> str:
    """Nothing from the network, and no script but these."""
    digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts)
    hashes = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _inside_script(data: Any) -> str:
    """JSON that no text in it can break out of."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _hero(result: ProbeResult) -> list[tuple[str, str]]:
    """The answer in as few words as it has, each as it stands among the rows."""
    if result.best is None:
        return []
    candidate = result.best.candidate
    words = [("batch size", str(candidate.batch_size))]
    if candidate.sequence_length is not None:
        words.append(("sequence length", str(candidate.sequence_length)))
    words.append(("precision", candidate.precision))
    if candidate.remat is not RematMode.NONE:
        words.append(("rematerialisation", str(candidate.remat)))
    if candidate.optimizer is not None:
        words.append(("optimizer", candidate.optimizer))
    return words


def _gauge(result: ProbeResult) -> dict[str, float] | None:
    """How full the limit is, in percent, and where the headroom begins."""
    if result.best is None:
        return None
    limit = result.budget.limit_bytes
    return {
        "peak": round(min(100.0, 100 * result.best.peak_bytes / limit), 2),
        "budget": round(100 * result.budget.budget_bytes / limit, 2),
    }


def _table(result: ProbeResult) -> dict[str, Any]:
    """The trials, and which columns they need."""
    entries: list[TrialEntry] = trial_entries(result)
    lanes = {entry.run.candidate.lane for entry in entries}
    return {
        "entries": entries,
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
        ("budget", f"{format_bytes(budget.budget_bytes)}, the limit less {budget.headroom:.0%} headroom"),
        ("objective", str(result.spec.space.objective)),
    ]
    for name, value in result.environment.items():
        words = ", ".join(f"{key}={entry}" for key, entry in value.items()) if isinstance(value, dict) else str(value)
        rows.append((name.replace("_", " "), words))
    paths = (("spec's folder", result.spec.folder), ("tuned config", result.tuned_path), ("ledger", result.ledger_path))
    rows += [(name, path) for name, path in paths if path]
    return rows + [("note", notice) for notice in result.notices]


def _explanation(explanation: Explanation) -> dict[str, Any]:
    parts = explained.part_rows(explanation)
    sizes = sorted(explanation.anatomy.parts, key=lambda part: -part.size_bytes) if explanation.anatomy else []
    return {
        "headline": explained.headline(explanation),
        "peak": explained.peak_sentence(explanation),
        "parts": parts,
        "layers": explained.layer_rows(explanation),
        "notes": [
            *explanation.notices,
            *explained.anatomy_notes(explanation),
            *explained.growth_sentences(explanation),
        ],
        "remedies": [explained.before_row(explanation), *explained.remedy_rows(explanation)],
        "remedy_notes": explained.remedy_notes(explanation),
        "figure": {
            "bars": [
                {
                    "name": row.name,
                    "peak_bytes": part.size_bytes,
                    "text": [row.name, f"{row.size}, {row.share:.0%}", row.how],
                }
                for row, part in zip(parts, sizes, strict=True)
            ],
            "summary": f"What memory holds at the peak: {'; '.join(f'{row.name} {row.size}' for row in parts)}.",
        },
    }
