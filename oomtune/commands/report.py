"""What `oomtune report` does: show, list, compare and clean up probes; and the files that show a probe or a check."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from oomtune.commands.comparison import Difference, differences, spec_differences
from oomtune.commands.probe import FinishedProbe, answer_text
from oomtune.domain import Budget, Explanation, TrialError, Verdict
from oomtune.errors import EnvironmentProblem, OutputNotWritable, UsageProblem
from oomtune.report import COMMENT_MARK, PAGE_MARK
from oomtune.report.check import CheckReport
from oomtune.report.csv import HEADER_MARK
from oomtune.report.junit import check_junit
from oomtune.report.markdown import check_markdown
from oomtune.report.pipelines import github_annotation, gitlab_code_quality, is_our_code_quality
from oomtune.search import best_fit
from oomtune.session import result_of
from oomtune.spec.files import is_there
from oomtune.storage.atomic import append, check_apart, check_appendable, check_writable, has_mark, write_whole
from oomtune.storage.explanations import load_explanation
from oomtune.storage.ledger_index import (
    Cleaned,
    LedgerFile,
    clean,
    find_ledger,
    ledger_folders,
    ledger_folders_of,
    list_ledgers,
    resolve_subject,
)
from oomtune.units import parse_seconds

_MOST_DIFFERENCES = 6
_PROBE_HINT = "the ledger is safe: make room, then oomtune report"
_CHECK_HINT = "make room or give another file, and check again"


def find_probe(word: str, here: Path) -> FinishedProbe:
    """Return the probe that a ledger, a spec, a tuned config or a spec's name stands for."""
    return from_ledger(find_ledger(word, here))


def from_ledger(ledger: LedgerFile) -> FinishedProbe:
    """Return the probe in a ledger as it was when it ended, or as far as it got."""
    contents, about, ended = ledger.contents, ledger.contents.about, ledger.contents.ended
    if about is None:
        raise UsageProblem(
            f"{ledger.path} does not say what was probed: another version of oomtune wrote it",
            hint="run the probe once more; no trial is run again",
        )
    budget = Budget(limit_bytes=contents.limit_bytes, headroom=about.headroom)
    verdict, problem = (ended.verdict, ended.problem) if ended else (Verdict.INTERRUPTED, _cut_off(ledger))
    result = dataclasses.replace(
        result_of(about.spec, about.device, budget, contents.records, verdict, problem),
        new_trials=ended.new_trials if ended else len(contents.records),
        environment=ended.environment if ended else about.environment,
        notices=ended.notices if ended else (),
        probed_at=ended.at if ended else contents.began_at,
        ledger_path=str(ledger.path),
    )
    text = answer_text(result, about)
    result = dataclasses.replace(result, tuned_path=about.output if text else None)
    return FinishedProbe(result=result, about=about, tuned_text=text)


def _cut_off(ledger: LedgerFile) -> TrialError:
    if ledger.running:
        return TrialError(code="running", message="the probe is still running")
    return TrialError(
        code="killed", message="the probe did not finish", hint="run the same command again to continue it"
    )


def explanation_of(finished: FinishedProbe) -> Explanation | None:
    """Return the latest explanation of the probed spec, with a notice if the spec was different then."""
    if finished.result.ledger_path is None:
        return None
    saved = load_explanation(Path(finished.result.ledger_path).parent, finished.about)
    if saved is None:
        return None
    changes = spec_differences(finished.about.values, saved.values)
    if not changes:
        return saved.explanation
    listed = [
        f"{change.what} was {change.words[1]} and not {change.words[0]}" for change in changes[:_MOST_DIFFERENCES]
    ]
    more = f"; and {len(changes) - len(listed)} more" if len(changes) > len(listed) else ""
    notice = f"The explained spec differs from the probed one: {'; '.join(listed)}{more}."
    return dataclasses.replace(saved.explanation, notices=(notice, *saved.explanation.notices))


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedProbe:
    """One line of `oomtune report --list`."""

    name: str
    at: str
    verdict: str
    best: str | None
    trials: int
    size_bytes: int
    spec_path: str | None
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    folders: tuple[Path, ...]
    subject: Path | None
    probes: tuple[ListedProbe, ...]


def list_probes(word: str | None, here: Path) -> Listing:
    """List the probes of the folder or spec `word`, or all that can be found from `here`."""
    places, subject = _places(word, here)
    probes = tuple(map(_listed, list_ledgers(places, subject)))
    return Listing(folders=tuple(places), subject=subject, probes=probes)


def clean_probes(word: str | None, here: Path, older_than: str) -> Cleaned:
    """Remove old ledgers of the folder or spec `word`, or of all, with the files that only they need."""
    try:
        seconds = parse_seconds(older_than)
    except ValueError as error:
        raise UsageProblem(f"--older-than {older_than}: {error}") from None
    places, subject = _places(word, here)
    return clean(places, time.time() - seconds, subject)


def _places(word: str | None, here: Path) -> tuple[list[Path], Path | None]:
    """Return the folders to search, and the folder or spec to limit the search to, if the user named one."""
    if word is None:
        return ledger_folders(here), None
    subject = resolve_subject(word, here)
    return ledger_folders_of(subject), subject


def _listed(ledger: LedgerFile) -> ListedProbe:
    contents, about = ledger.contents, ledger.contents.about
    best = best_fit(about.spec.space, contents.records) if about else None
    verdict = str(contents.ended.verdict) if contents.ended else "running" if ledger.running else "unfinished"
    return ListedProbe(
        name=ledger.name,
        at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ledger.modified)),
        verdict=verdict if about else "unknown",
        best=None if best is None else str(best.candidate),
        trials=len(contents.records),
        size_bytes=ledger.size_bytes,
        spec_path=(about.spec_path or None) if about else None,
        path=str(ledger.path),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    before: FinishedProbe
    after: FinishedProbe
    differences: tuple[Difference, ...]


def compare_probes(first: str, second: str, here: Path) -> Comparison:
    before, after = find_probe(first, here), find_probe(second, here)
    changes = differences(before.result, after.result, before.about.values, after.about.values)
    return Comparison(before=before, after=after, differences=tuple(changes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """One kind of file: its flag, the bytes that mark a file as ours, and the function that makes its text."""

    flag: str
    mark: bytes
    render: Callable[[FinishedProbe], str]

    def is_ours(self, path: Path) -> bool:
        """Return True if an earlier run wrote this file, or if it is empty."""
        return has_mark(path, self.mark)


def _html(finished: FinishedProbe) -> str:
    from oomtune.report.html import probe_page

    return probe_page(finished.result, tuned_text=finished.tuned_text, explanation=explanation_of(finished))


def _markdown(finished: FinishedProbe) -> str:
    from oomtune.report.markdown import probe_markdown

    return probe_markdown(finished.result, tuned_text=finished.tuned_text)


def _junit(finished: FinishedProbe) -> str:
    from oomtune.report.junit import probe_junit

    return probe_junit(finished.result)


def _csv(finished: FinishedProbe) -> str:
    from oomtune.report.csv import probe_csv

    return probe_csv(finished.result)


def _json(finished: FinishedProbe) -> str:
    from oomtune.report.json_document import report_document

    return json.dumps(report_document(finished.result), indent=1) + "\n"


RENDERINGS = {
    ".html": Rendering(flag="--report", mark=f'content="{PAGE_MARK}'.encode(), render=_html),
    ".md": Rendering(flag="--summary", mark=COMMENT_MARK.encode(), render=_markdown),
    ".xml": Rendering(flag="--junit", mark=COMMENT_MARK.encode(), render=_junit),
    ".csv": Rendering(flag="--csv", mark=HEADER_MARK.encode(), render=_csv),
    ".json": Rendering(flag="-o", mark=b'"oomtune": "', render=_json),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeFiles:
    """The files that show a probe: paths with their kinds, and a folder for TensorBoard."""

    files: Sequence[tuple[Path, Rendering]] = ()
    tensorboard: Path | None = None

    def check(self, *, force: bool, others: Mapping[Path, str] | None = None) -> None:
        """Raise unless every file can be written and none is one of `others`; call this before the trials."""
        check_apart([(kind.flag, path) for path, kind in self.files], others or {})
        for path, kind in self.files:
            if not _is_step_summary(path):
                check_writable(path, flag=kind.flag, force=force, is_ours=kind.is_ours)
        if self.tensorboard is not None:
            _check_logdir(self.tensorboard)

    def write(self, finished: FinishedProbe) -> None:
        for path, kind in self.files:
            text = kind.render(finished)
            if _is_step_summary(path):
                append(path, text, hint=_PROBE_HINT)
            else:
                write_whole(path, text, hint=_PROBE_HINT)
        if self.tensorboard is not None:
            from oomtune.report.tensorboard import write_events

            with _write_errors(self.tensorboard):
                write_events(finished.result, self.tensorboard)


def probe_files(paths: Sequence[Path], tensorboard: Path | None = None) -> ProbeFiles:
    """Return files whose kinds follow from their suffixes."""
    files = []
    for path in paths:
        kind = RENDERINGS.get({".htm": ".html"}.get(path.suffix.lower(), path.suffix.lower()))
        if kind is None:
            raise UsageProblem(f"-o {path}: expected a name that ends in {', '.join(RENDERINGS)}")
        files.append((path, dataclasses.replace(kind, flag="-o")))
    return ProbeFiles(files=files, tensorboard=tensorboard)


@contextlib.contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputNotWritable(f"{path} can't be written: {error.strerror}", hint=_PROBE_HINT) from None


def _is_step_summary(path: Path) -> bool:
    """Return True for the summary file that GitHub Actions asks every step to append to."""
    return str(path) == os.environ.get("GITHUB_STEP_SUMMARY")


def _check_logdir(logdir: Path) -> None:
    if importlib.util.find_spec("tensorboard") is None:
        raise EnvironmentProblem("TensorBoard is not installed", hint="pip install 'oomtune[tensorboard]'")
    existing = next(place for place in (logdir, *logdir.absolute().parents) if is_there(place))
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise OutputNotWritable(f"{logdir} can't be written", hint="give another folder with --tensorboard")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFiles:
    """The files that show a check. Text is appended to `summary`, as GitHub expects; the others are replaced."""

    junit: Path | None = None
    summary: Path | None = None
    code_quality: Path | None = None

    def check(self, checked: Path, *, force: bool) -> None:
        """Raise unless every file can be written without losing anything, above all not the checked file."""
        paths = {"--junit": self.junit, "--summary": self.summary, "--code-quality": self.code_quality}
        files = [(flag, path) for flag, path in paths.items() if path is not None]
        check_apart(files, {checked: "the file that is checked"})
        for flag, path in files:
            if flag == "--summary":
                check_appendable(path, flag=flag)
            else:
                is_ours = RENDERINGS[".xml"].is_ours if flag == "--junit" else _is_our_code_quality
                check_writable(path, flag=flag, force=force, is_ours=is_ours)

    def write(self, report: CheckReport) -> str | None:
        """Write the files; on GitHub Actions return the annotation that marks the checked line."""
        if self.junit is not None:
            write_whole(self.junit, check_junit(report), hint=_CHECK_HINT)
        if self.summary is not None:
            append(self.summary, check_markdown(report), hint=_CHECK_HINT)
        if self.code_quality is not None:
            text = gitlab_code_quality(_relative_to_checkout(report, "CI_PROJECT_DIR"))
            write_whole(self.code_quality, text, hint=_CHECK_HINT)
        on_github = os.environ.get("GITHUB_ACTIONS") == "true"
        return github_annotation(_relative_to_checkout(report, "GITHUB_WORKSPACE")) if on_github else None


def _relative_to_checkout(report: CheckReport, variable: str) -> CheckReport:
    """Make the path relative to the root of the checkout, as the CI service knows the file, if it lies in it."""
    root = os.environ.get(variable)
    path = Path(report.path).resolve()
    if not root or not path.is_relative_to(Path(root).resolve()):
        return report
    return dataclasses.replace(report, path=path.relative_to(Path(root).resolve()).as_posix())


def _is_our_code_quality(path: Path) -> bool:
    return is_our_code_quality(path.read_text(encoding="utf-8", errors="replace"))
