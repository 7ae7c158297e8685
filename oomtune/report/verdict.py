"""How a probe ended, as a sign, a word and a sentence."""

from __future__ import annotations

from dataclasses import dataclass

from oomtune.domain import ProbeResult, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictWords:
    sign: str
    word: str
    sentence: str
    good: bool


def verdict_words(result: ProbeResult) -> VerdictWords:
    best = result.best
    said = result.problem.message if result.problem else ""
    so_far = f"; the best so far is {best.candidate}" if best else "; nothing that ran has fitted yet"
    match result.verdict:
        case Verdict.TUNED:
            steps = best.confirmed_by.outcome.steps_run if best and best.confirmed_by else 0
            proof = f", confirmed by {steps} steps in a fresh process" if steps else ", not confirmed"
            sentence = f"{capital(str(best.candidate if best else ''))} trains{proof}."
            return VerdictWords(sign="●", word="fits", sentence=sentence, good=True)
        case Verdict.STOPPED:
            return VerdictWords(sign="◐", word="stopped", sentence=f"{capital(said)}{so_far}.", good=best is not None)
        case Verdict.NOTHING_FITS:
            sentence = capital(said) or "Not even the smallest configuration fits"
            return VerdictWords(sign="✕", word="nothing fits", sentence=f"{sentence}.", good=False)
        case Verdict.FAILED:
            sentence = f"A trial failed, and memory is not why: {said or 'see the trials'}"
            return VerdictWords(sign="■", word="failed", sentence=f"{sentence.rstrip('.')}.", good=False)
        case Verdict.INTERRUPTED:
            sentence = capital(said) or "Interrupted"
            return VerdictWords(sign="◐", word="interrupted", sentence=f"{sentence}{so_far}.", good=False)


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]
