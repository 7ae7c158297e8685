"""The verdict of a check in words, and how sure it is: the one place that every way of showing it takes them from."""

from __future__ import annotations

from dataclasses import dataclass

from oomtune.domain import CheckResult, CheckVerdict, Kind
from oomtune.units import format_bytes

# A CPU that stands in for a card has found room for 15 to 50 % more than such cards really hold.
_SURE, _LIKELY = 1.5, 1.15


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckWords:
    """The verdict in one line, and what to do next; empty when all is well."""

    sentence: str
    hint: str = ""


def what_was_edited(result: CheckResult) -> str:
    """What is said above the lines that differ."""
    if result.file_edited and result.spec_edited:
        return "This file has been edited since it was tuned, and so has the spec that it was tuned from:"
    if result.file_edited:
        return "This file has been edited since it was tuned:"
    return "The spec that it was tuned from has been edited since:"


def words(result: CheckResult) -> CheckWords:
    said = _of_the_verdict(result)
    ran = result.verdict not in (CheckVerdict.UPDATED, CheckVerdict.WRONG_DEVICE)
    if not result.is_of_an_earlier_spec or not ran:
        return said
    take_over = "take the edit over: oomtune check --update" if result.exit_code == 0 else ""
    return CheckWords(
        sentence=f"{said.sentence}, with its spec as it was before it was edited", hint=said.hint or take_over
    )


def _of_the_verdict(result: CheckResult) -> CheckWords:
    match result.verdict:
        case CheckVerdict.FITS | CheckVerdict.UPDATED:
            return _fits(result)
        case CheckVerdict.USES_MORE:
            return CheckWords(
                sentence=f"{result.candidate} fits, but uses {result.growth or 0:.1%} more memory than it did",
                hint=f"accept it with --tolerance {(result.growth or 0) + 0.01:.0%}, or tune again: --update",
            )
        case CheckVerdict.DOES_NOT_FIT:
            return _does_not_fit(result)
        case CheckVerdict.WRONG_DEVICE:
            return CheckWords(
                sentence="this is not the device that the config was tuned on",
                hint="check it on that device, or here with --allow-device-change",
            )
        case CheckVerdict.UNDECIDED:
            return CheckWords(
                sentence=f"{result.candidate} does not fit in {_less(result)}, which says nothing of that card",
                hint="check it on that card, or on a machine with more free memory",
            )
        case CheckVerdict.BROKEN:
            left = f"; {result.path} is left as it is"
            sentence = "the model or its data is broken" if result.updated is None else f"the new search failed{left}"
            return CheckWords(sentence=sentence, hint=result.problem.hint if result.problem else "")


def _fits(result: CheckResult) -> CheckWords:
    if result.verdict is CheckVerdict.UPDATED:
        anew = "searched anew, with the spec as it is now" if result.took_over else "searched anew"
        return CheckWords(sentence=f"{anew}: {result.candidate} fits; {result.path} is rewritten")
    if not result.confirmed:
        return CheckWords(sentence=f"{result.candidate} fits, which had never been confirmed")
    return CheckWords(sentence=f"{result.candidate} {'still fits' if result.was_tuned else 'fits'}")


def _does_not_fit(result: CheckResult) -> CheckWords:
    outcome = result.deciding
    what = str(result.candidate) if outcome is result.outcome else f"with its buckets by turns, {result.candidate}"
    if result.updated is not None:
        where = "with the spec as it is now" if result.took_over else f"at {result.candidate.lane}"
        return CheckWords(
            sentence=f"nothing fits any more {where}; {result.path} is left as it is",
            hint=f"search all that its spec allows: oomtune probe {result.path}; or give it more memory",
        )
    if outcome is not None and outcome.kind is Kind.TIMEOUT:
        hint = result.problem.hint if result.problem else ""
        return CheckWords(sentence=f"{what} did not end in time, which says nothing of its memory", hint=hint)
    if not result.confirmed:
        return CheckWords(
            sentence=f"{what} does not fit, and that it does was never confirmed",
            hint="find what fits: oomtune check --update",
        )
    if result.was_tuned:
        return CheckWords(
            sentence=f"{what} no longer fits", hint="tune again: oomtune check --update, or find what changed"
        )
    return CheckWords(sentence=f"{what} does not fit", hint="find what fits: oomtune probe")


def _less(result: CheckResult) -> str:
    """What this machine had to give, beside what the card has."""
    limit, card_limit = (format_bytes(size) for size in (result.budget.limit_bytes, result.card_limit_bytes or 0))
    return f"the {limit} that this machine has to give, where a {result.device.stands_in_for} has {card_limit}"


def certainty(result: CheckResult) -> str:
    """How far a verdict that a CPU gave in place of a card can be relied on, and with how much memory it ran."""
    ran_with = "" if result.card_limit_bytes is None else f"; it ran with {_less(result)}"
    return f"{_certainty(result)}{ran_with}"


def _certainty(result: CheckResult) -> str:
    card, outcome = result.device.stands_in_for, result.deciding
    if result.verdict is CheckVerdict.UNDECIDED:
        return f"not known: a {card} has more memory than it ran out of here"
    if outcome is not None and outcome.kind is Kind.DEVICE_OOM:
        return f"sure: what does not fit here does not fit a {card} either"
    if outcome is None or outcome.kind is not Kind.FITS or not outcome.peak_bytes:
        return f"not known: the run did not come to its end, which says nothing of a {card}"
    room = result.card_budget_bytes / outcome.peak_bytes
    if room >= _SURE:
        return f"sure: a {card} may need 50 % more than the CPU, and there is room for that"
    if room >= _LIKELY:
        return f"likely: a {card} may need 15 to 50 % more than the CPU, and there is room for {room - 1:.0%}"
    return f"not sure: a {card} may need 15 to 50 % more than the CPU, and there is room for only {room - 1:.0%}"
