"""The result of a check as words and rows, and the report that CI formats render."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

from oomtune.domain import CheckResult, CheckVerdict, Kind
from oomtune.errors import OomtuneError, SpecProblem, TrialCrashed
from oomtune.report.trial_rows import ending_of, peak_of_limit
from oomtune.units import format_bytes, format_ms, format_share

# Configurations that fit on a CPU standing in for a card were 15 to 50 % too large for the real cards.
_SURE, _LIKELY = 1.5, 1.15


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckMessage:
    """The verdict in one sentence, and what to do next; no hint when nothing needs doing."""

    sentence: str
    hint: str = ""


def check_message(result: CheckResult) -> CheckMessage:
    message = _verdict_message(result)
    ran = result.verdict not in (CheckVerdict.UPDATED, CheckVerdict.WRONG_DEVICE)
    if not result.ignores_spec_edit or not ran:
        return message
    apply_edit = "apply the edited spec: oomtune check --update" if result.exit_code == 0 else ""
    return CheckMessage(
        sentence=f"{message.sentence}, with its spec as it was before the edit", hint=message.hint or apply_edit
    )


def _verdict_message(result: CheckResult) -> CheckMessage:
    match result.verdict:
        case CheckVerdict.FITS | CheckVerdict.UPDATED:
            return _fits_message(result)
        case CheckVerdict.USES_MORE:
            return CheckMessage(
                sentence=f"{result.candidate} fits, but uses {result.growth or 0:.1%} more memory than before",
                hint=f"accept this with --tolerance {(result.growth or 0) + 0.01:.0%}, or tune again with --update",
            )
        case CheckVerdict.DOES_NOT_FIT:
            return _does_not_fit_message(result)
        case CheckVerdict.WRONG_DEVICE:
            return CheckMessage(
                sentence="this config was tuned on another device",
                hint="check it on that device, or here with --allow-device-change",
            )
        case CheckVerdict.UNDECIDED:
            return CheckMessage(
                sentence=f"{result.candidate} does not fit here, which says nothing about the card: "
                f"{_memory_here(result)}",
                hint="check it on that card, or on a machine with more free memory",
            )
        case CheckVerdict.BROKEN:
            search_failed = f"the new search failed; {result.path} is unchanged"
            sentence = "the model or its data is broken" if result.updated is None else search_failed
            return CheckMessage(sentence=sentence, hint=result.problem.hint if result.problem else "")


def _fits_message(result: CheckResult) -> CheckMessage:
    if result.verdict is CheckVerdict.UPDATED:
        searched = "searched the edited spec" if result.uses_edited_spec else "searched again"
        return CheckMessage(sentence=f"{searched}: {result.candidate} fits; {result.path} is rewritten")
    if not result.confirmed:
        return CheckMessage(sentence=f"{result.candidate} fits; it had never been confirmed before")
    return CheckMessage(sentence=f"{result.candidate} {'still fits' if result.was_tuned else 'fits'}")


def _does_not_fit_message(result: CheckResult) -> CheckMessage:
    outcome = result.deciding
    what = str(result.candidate) if outcome is result.outcome else f"{result.candidate} with alternating buckets"
    if result.updated is not None:
        where = "with the edited spec" if result.uses_edited_spec else f"at {result.candidate.lane}"
        return CheckMessage(
            sentence=f"nothing fits any more {where}; {result.path} is unchanged",
            hint=f"search everything that its spec allows: oomtune probe {result.path}; or give it more memory",
        )
    if outcome is not None and outcome.kind is Kind.TIMEOUT:
        hint = result.problem.hint if result.problem else ""
        return CheckMessage(sentence=f"{what} did not finish in time, so its memory use is not known", hint=hint)
    if not result.confirmed:
        return CheckMessage(
            sentence=f"{what} does not fit, and was never confirmed to fit",
            hint="find what fits: oomtune check --update",
        )
    if result.was_tuned:
        return CheckMessage(
            sentence=f"{what} no longer fits", hint="tune again: oomtune check --update, or find what changed"
        )
    return CheckMessage(sentence=f"{what} does not fit", hint="find what fits: oomtune probe")


def edit_notice(result: CheckResult) -> str:
    """Return the heading for the lines of `spec_diff`."""
    if result.file_edited and result.spec_edited:
        return "This file and the spec it was tuned from have both been edited since:"
    if result.file_edited:
        return "This file has been edited since it was tuned:"
    return "The spec that this file was tuned from has been edited since:"


def _memory_here(result: CheckResult) -> str:
    """Compare the memory of this machine with the memory of the card it stands in for."""
    here, card = (format_bytes(size) for size in (result.budget.limit_bytes, result.card_limit_bytes or 0))
    return f"this machine can give {here}, and a {result.device.stands_in_for} has {card}"


def certainty(result: CheckResult) -> str:
    """Return how reliable the verdict of a CPU that stands in for a card is, and how much memory both have."""
    memory = "" if result.card_limit_bytes is None else f"; {_memory_here(result)}"
    return f"{_certainty(result)}{memory}"


def _certainty(result: CheckResult) -> str:
    card, outcome = result.device.stands_in_for, result.deciding
    if result.verdict is CheckVerdict.UNDECIDED:
        return f"not known: the run needed more memory than is free here, and a {card} has more"
    if outcome is not None and outcome.kind is Kind.DEVICE_OOM:
        return f"sure: what does not fit here does not fit on a {card} either"
    if outcome is None or outcome.kind is not Kind.FITS or not outcome.peak_bytes:
        return f"not known: the run did not finish, which says nothing about a {card}"
    room = result.card_budget_bytes / outcome.peak_bytes
    if room >= _SURE:
        return f"sure: a {card} may need 50 % more than the CPU, and there is room for that"
    if room >= _LIKELY:
        return f"likely: a {card} may need 15 to 50 % more than the CPU, and there is room for {room - 1:.0%}"
    return f"not sure: a {card} may need 15 to 50 % more than the CPU, and there is room for only {room - 1:.0%}"


def check_rows(result: CheckResult) -> list[tuple[str, str]]:
    """Return the facts of a check as pairs of a name and a value."""
    peak_bytes = result.outcome.peak_bytes if result.outcome else None
    rows = [("configuration", str(result.candidate))]
    if result.candidate_before is not None:
        rows.append(("before", str(result.candidate_before)))
    if peak_bytes is not None:
        rows.append(("peak memory", peak_of_limit(peak_bytes, result.budget)))
    if peak_bytes is not None and peak_bytes > result.budget.budget_bytes and result.exit_code == 0:
        used = format_bytes(peak_bytes - result.budget.budget_bytes)
        rows.append(("headroom", f"{used} used, within the tolerance"))
    if result.expected_peak_bytes is not None:
        allowed = format_share(result.tolerance)
        growth = "" if result.growth is None else f": {result.growth:+.1%}, {allowed} allowed"
        rows.append(("when it was tuned", f"{format_bytes(result.expected_peak_bytes)}{growth}"))
    elif result.not_compared:
        rows.append(("when it was tuned", result.not_compared))
    if result.buckets_outcome is not None:
        rows.append(("alternating buckets", ending_of(result.buckets_outcome).words))
    if result.outcome and result.outcome.step_ms:
        rows.append(("step", format_ms(result.outcome.step_ms)))
    if result.device.stands_in_for is not None and result.verdict is not CheckVerdict.WRONG_DEVICE:
        rows.append(("how sure", certainty(result)))
    return rows + [("changed", str(change)) for change in result.changes]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """A finished check, or the error that prevented it, for Markdown, JUnit, GitHub and GitLab."""

    path: str
    name: str
    code: str
    """The verdict, or the code of the error."""
    sentence: str
    hint: str = ""
    problem_kind: Literal["failure", "error"] | None = None
    """A failure is about memory, an error about anything else."""
    is_grave: bool = True
    line: int | None = None
    """The line of the file at `path` to annotate."""
    rows: tuple[tuple[str, str], ...] = ()
    key_facts: tuple[str, ...] = ()
    """The first line of the error, the peak and the limit, for formats that show little else."""
    changed: tuple[str, ...] = ()
    edit_notice: str = ""
    spec_diff: tuple[str, ...] = ()
    problem: str = ""
    traceback: str = ""
    duration_s: float = 0.0

    @property
    def summary(self) -> list[str]:
        """The lines of an annotation."""
        changed = f"changed: {'; '.join(self.changed)}" if self.changed else ""
        return list(filter(None, [self.sentence, *self.key_facts, changed, self.hint]))


def check_report(result: CheckResult) -> CheckReport:
    message = check_message(result)
    edited = "this file" if result.file_edited else "the spec that it was tuned from"
    return CheckReport(
        path=result.path,
        name=result.name,
        code=result.verdict.value,
        sentence=message.sentence,
        hint=message.hint,
        problem_kind=None if result.exit_code == 0 else "failure" if result.exit_code == 4 else "error",
        is_grave=result.verdict is not CheckVerdict.USES_MORE,
        line=_line_number(result.where, result.path),
        rows=tuple(check_rows(result)),
        key_facts=_key_facts(result),
        changed=(*map(str, result.changes), *((edited,) if result.spec_diff else ())),
        edit_notice=edit_notice(result),
        spec_diff=result.spec_diff,
        problem=result.problem.message if result.problem else "",
        traceback=result.problem.traceback if result.problem else "",
        duration_s=result.outcome.duration_s if result.outcome else 0.0,
    )


def failed_check_report(path: str, error: OomtuneError) -> CheckReport:
    """Return the report of a check that an error ended before its verdict."""
    where = error.problems[0].where if isinstance(error, SpecProblem) else error.where
    return CheckReport(
        path=path,
        name=PurePath(path).name,
        code=error.code,
        sentence=str(error),
        hint=error.hint,
        problem_kind="error",
        traceback=error.traceback if isinstance(error, TrialCrashed) else "",
        line=_line_number(where, path),
    )


def _key_facts(result: CheckResult) -> tuple[str, ...]:
    if result.exit_code == 0:
        return ()
    error = result.problem.message.partition("\n")[0] if result.problem else ""
    error_has_figures = result.outcome is not None and result.outcome.over_headroom
    is_memory = result.verdict in (CheckVerdict.USES_MORE, CheckVerdict.DOES_NOT_FIT, CheckVerdict.UNDECIDED)
    if not is_memory or error_has_figures:
        return tuple(filter(None, (error,)))
    rows = dict(check_rows(result))
    figures = [f"{name}: {rows[name]}" for name in ("peak memory", "when it was tuned") if name in rows]
    budget, limit = (format_bytes(size) for size in (result.budget.budget_bytes, result.budget.limit_bytes))
    room = "" if "peak memory" in rows else f"limit: {limit}, budget: {budget}"
    return tuple(filter(None, (error, *figures, room)))


def _line_number(where: str, path: str) -> int | None:
    """Return the line number if `where` is a line of this file; None if it is another file or a flag."""
    number = where.removeprefix(f"{path}:")
    return int(number) if number != where and number.isdigit() else None
