"""A check as CI annotations: a workflow command for GitHub, a code quality report for GitLab."""

from __future__ import annotations

import hashlib
import json
from pathlib import PurePath

from oomtune.report.check import CheckReport

_CHECK_NAME_PREFIX = "oomtune-"


def github_annotation(report: CheckReport) -> str | None:
    """Return a workflow command that marks the failure on the spec's line; None when the check passed."""
    if report.problem_kind is None:
        return None
    line = "" if report.line is None else f",line={report.line}"
    title = _escape_property(f"oomtune check: {report.name}")
    return f"::error file={_escape_property(report.path)}{line},title={title}::{_escape(chr(10).join(report.summary))}"


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape(text).replace(":", "%3A").replace(",", "%2C")


def gitlab_code_quality(report: CheckReport) -> str:
    """Return a JSON list with the failure; an empty list when the check passed."""
    if report.problem_kind is None:
        return "[]\n"
    issue = {
        "description": "; ".join(report.summary),
        "check_name": f"{_CHECK_NAME_PREFIX}{report.code}",
        "fingerprint": hashlib.sha256(f"{report.path}\0{report.code}".encode()).hexdigest(),
        "severity": "major" if report.is_grave else "minor",
        "location": {"path": PurePath(report.path).as_posix(), "lines": {"begin": report.line or 1}},
    }
    return json.dumps([issue], indent=2) + "\n"


def is_our_code_quality(text: str) -> bool:
    """Return True if oomtune wrote this code quality report. Accept any empty report: overwriting it loses nothing."""
    try:
        issues = json.loads(text or "[]")
    except (ValueError, RecursionError):
        return False
    return isinstance(issues, list) and all(
        isinstance(issue, dict) and str(issue.get("check_name", "")).startswith(_CHECK_NAME_PREFIX) for issue in issues
    )
