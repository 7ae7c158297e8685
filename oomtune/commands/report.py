"""A finished probe, out of its ledger or just ended, into every kind of file that shows it."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oomtune.domain import Budget, Explanation, ProbeResult, TrialError, Verdict
from oomtune.errors import EnvironmentProblem, OutputNotWritable, UsageProblem
from oomtune.report import marks
from oomtune.report.comparing import spec_differences
from oomtune.report.table import COLUMNS
from oomtune.session import result_of
from oomtune.spec.files import is_there
from oomtune.storage.atomic import check_apart, check_writable, has_mark, write_whole
from oomtune.storage.explanations import kept_explanation
from oomtune.storage.ledger_format import About
from oomtune.storage.ledger_index import LedgerFile, look
from oomtune.storage.tuned import spec_folder_from, tuned_text, tuned_values

_MOST_DIFFERENCES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A probe that came to an end, whichever, with what it wrote and what was explained of it."""

    result: ProbeResult
    tuned_text: str = ""
    values: dict[str, Any] = dataclasses.field(default_factory=dict)
    """The spec as it was written."""
    explanation: Explanation | None = None


def from_ledger(ledger: LedgerFile) -> Finished:
    """The probe that a ledger tells of, as it was when it ended or as far as it came."""
    kept, about = ledger.kept, ledger.kept.about
    if about is None:
        raise UsageProblem(
            f"{ledger.path} does not say what was probed: another version of oomtune wrote it",
            hint="run the probe once more; no trial is run again",
        )
    budget = Budget(limit_bytes=kept.limit_bytes, headroom=about.headroom)
    ended = kept.ended
    verdict, problem = (ended.verdict, ended.problem) if ended else (Verdict.INTERRUPTED, _cut_off(ledger))
    result = result_of(about.spec, about.device, budget, kept.records, verdict, problem)
    result = dataclasses.replace(
        result,
        new_trials=ended.new_trials if ended else len(kept.records),
        environment=ended.environment if ended else about.environment,
        notices=ended.notices if ended else (),
        probed_at=ended.at if ended else kept.began_at,
        ledger_path=str(ledger.path),
    )
    finished = Finished(result=result, values=about.values, explanation=_explanation_of(ledger.path.parent, about))
    if about.output is None or result.best is None or verdict not in (Verdict.TUNED, Verdict.STOPPED):
        return finished
    folder = spec_folder_from(Path(about.output), about.spec.folder)
    values = tuned_values(
        about.values,
        result,
        spec_sha256=about.spec_sha256,
        probed_at=result.probed_at,
        folder=folder,
        origin=about.origin,
    )
    written = dataclasses.replace(result, tuned_path=about.output)
    return dataclasses.replace(finished, result=written, tuned_text=tuned_text(values))


def _explanation_of(folder: Path, about: About) -> Explanation | None:
    """What was explained of the probed file, with a word on what differed then."""
    kept = kept_explanation(folder, about)
    if kept is None:
        return None
    found = spec_differences(about.values, kept.values)
    if not found:
        return kept.explanation
    listed = [f"{one.what} was {one.words[1]} and not {one.words[0]}" for one in found[:_MOST_DIFFERENCES]]
    more = f"; and {len(found) - len(listed)} more" if len(found) > len(listed) else ""
    said = f"This was explained with another spec than was probed: {'; '.join(listed)}{more}."
    return dataclasses.replace(kept.explanation, notices=(said, *kept.explanation.notices))


def _cut_off(ledger: LedgerFile) -> TrialError:
    if ledger.running:
        return TrialError(code="running", message="the probe is still running")
    return TrialError(
        code="killed", message="the probe did not come to its end", hint="the same command goes on from there"
    )


def just_ended(result: ProbeResult) -> Finished:
    """A probe of this very process, with what its ledger knows beside the result."""
    ledger = look(Path(result.ledger_path)) if result.ledger_path else None
    if ledger is None or ledger.kept.about is None:
        return Finished(result=result)
    kept = from_ledger(ledger)
    return dataclasses.replace(kept, result=result, tuned_text=kept.tuned_text if result.tuned_path else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """One kind of file: how it is asked for, what tells that one is ours, and how its text is made."""

    flag: str
    mark: bytes
    render: Callable[[Finished], str]

    def wrote(self, path: Path) -> bool:
        """Did an earlier probe write this file, or is it empty?"""
        return has_mark(path, self.mark)


def _html(finished: Finished) -> str:
    from oomtune.report.html import html_page

    return html_page(finished.result, tuned_text=finished.tuned_text, explanation=finished.explanation)


def _markdown(finished: Finished) -> str:
    from oomtune.report.markdown import markdown_page

    return markdown_page(finished.result, tuned_text=finished.tuned_text)


def _junit(finished: Finished) -> str:
    from oomtune.report.junit import junit_page

    return junit_page(finished.result)


def _csv(finished: Finished) -> str:
    from oomtune.report.table import csv_page

    return csv_page(finished.result)


def _json(finished: Finished) -> str:
    from oomtune.report.document import report_document

    return json.dumps(report_document(finished.result), indent=1) + "\n"


RENDERINGS = {
    ".html": Rendering(flag="--report", mark=f'content="{marks.GENERATOR}'.encode(), render=_html),
    ".md": Rendering(flag="--summary", mark=marks.COMMENT.encode(), render=_markdown),
    ".xml": Rendering(flag="--junit", mark=marks.COMMENT.encode(), render=_junit),
    ".csv": Rendering(flag="--csv", mark=",".join(COLUMNS[:5]).encode(), render=_csv),
    ".json": Rendering(flag="-o", mark=b'"oomtune": "', render=_json),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """The files that were asked for, each with its kind; and a folder for TensorBoard."""

    files: Sequence[tuple[Path, Rendering]] = ()
    tensorboard: Path | None = None

    @property
    def wanted(self) -> bool:
        return bool(self.files) or self.tensorboard is not None

    def check(self, *, force: bool, others: Mapping[Path, str] | None = None) -> None:
        """Raise unless each can be written, and is none of the `others`; before a probe, so that no time is spent for
        nothing."""
        check_apart([(kind.flag, path) for path, kind in self.files], others or {})
        for path, kind in self.files:
            if not _is_step_summary(path):
                check_writable(path, flag=kind.flag, force=force, is_ours=kind.wrote)
        if self.tensorboard is not None:
            _check_logdir(self.tensorboard)

    def write(self, finished: Finished) -> None:
        hint = "the ledger is kept: make room, then oomtune report"
        for path, kind in self.files:
            text = kind.render(finished)
            if _is_step_summary(path):
                with _told(path, hint), path.open("a", encoding="utf-8") as file:
                    file.write(text)
            else:
                write_whole(path, text, hint=hint)
        if self.tensorboard is not None:
            from oomtune.report.tensorboard import write_events

            with _told(self.tensorboard, hint):
                write_events(finished.result, self.tensorboard)


@contextlib.contextmanager
def _told(path: Path, hint: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputNotWritable(f"{path} can't be written: {error.strerror}", hint=hint) from None


def _is_step_summary(path: Path) -> bool:
    """Is it the file that GitHub gives every step to add to?"""
    return str(path) == os.environ.get("GITHUB_STEP_SUMMARY")


def _check_logdir(logdir: Path) -> None:
    if importlib.util.find_spec("tensorboard") is None:
        raise EnvironmentProblem("TensorBoard is not installed", hint="pip install 'oomtune[tensorboard]'")
    existing = next(place for place in (logdir, *logdir.absolute().parents) if is_there(place))
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise OutputNotWritable(f"{logdir} can't be written", hint="give another folder with --tensorboard")


def outputs_by_suffix(paths: Sequence[Path], tensorboard: Path | None = None) -> Outputs:
    """Files whose names say what they are to be."""
    files = []
    for path in paths:
        kind = RENDERINGS.get({".htm": ".html"}.get(path.suffix.lower(), path.suffix.lower()))
        if kind is None:
            raise UsageProblem(f"-o {path}: expected a name that ends in {', '.join(RENDERINGS)}")
        files.append((path, dataclasses.replace(kind, flag="-o")))
    return Outputs(files=files, tensorboard=tensorboard)
