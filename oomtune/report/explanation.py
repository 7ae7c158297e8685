"""An explanation as rows and sentences: what every way of showing it agrees on."""

from __future__ import annotations

from dataclasses import dataclass

from oomtune.diagnosis.spec_entry import spec_line
from oomtune.domain import Anatomy, Certainty, Cost, Explanation, Growth, Held, LayerMemory, Phase, TriedRemedy
from oomtune.units import format_bytes

MOST_LAYERS = 8
_LEAST_SHARE = 0.001
_THE_REST = "what is left"
_PARTS = {
    Held.WEIGHTS: "weights",
    Held.OPTIMIZER_STATE: "optimizer state",
    Held.GRADIENTS: "gradients",
    Held.ACTIVATIONS: "activations kept for the backward pass",
    Held.REST: "workspace and rest",
}
_PHASES = {
    Phase.FORWARD: "in the forward pass",
    Phase.BACKWARD: "in the backward pass",
    Phase.UPDATE: "while the optimizer updates the weights",
}
_NOTHING = "none"
_CERTAINTIES = {Certainty.RAN: "", Certainty.AT_LEAST: "≥", Certainty.NO_LARGER: "=", Certainty.PREDICTED: "~"}
_SAID_OF_BATCHES = {
    Certainty.RAN: "it ran for a few steps in a process of its own, and some per cent more did not fit",
    Certainty.AT_LEAST: "“≥” ran so too, and more may fit",
    Certainty.NO_LARGER: "“=” ran so too, and a larger one fails for another reason than memory",
    Certainty.PREDICTED: "“~” is predicted, with care",
}
# A batch that is less than this many times as large may be chance.
_MORE = 1.1
_IN_THE_MODEL = "in the model: GRU where it says LSTM"
# Less than this above 2 is noise: memory is linear in the sequence.
_LINEAR = 2.6
_QUADRATIC = 3.4
# Pairs of tokens that take less than this, beside what the tokens take, are not worth a word.
_LEAST_OF_PAIRS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRow:
    name: str
    size: str
    share: float
    how: str


def headline(explanation: Explanation) -> str:
    return f"at {explanation.candidate} ({explanation.chosen})"


def part_rows(explanation: Explanation) -> list[PartRow]:
    """The parts of the peak, the largest first."""
    anatomy = explanation.anatomy
    if anatomy is None:
        return []
    rows = [
        PartRow(
            name=_PARTS[part.held],
            size=format_bytes(part.size_bytes),
            share=part.size_bytes / max(1, anatomy.total_bytes),
            how=_how(anatomy, part.held, part.measured),
        )
        for part in anatomy.parts
    ]
    return sorted(rows, key=lambda row: -row.share)


def _how(anatomy: Anatomy, held: Held, measured: bool) -> str:
    if held in (Held.WEIGHTS, Held.OPTIMIZER_STATE):
        return "computed, the sum of the variables"
    if held is Held.REST and measured:
        of_it = [
            f"{name} {format_bytes(size)}"
            for name, size in (("backward pass", anatomy.backward_bytes), ("optimizer's update", anatomy.update_bytes))
            if size > 0.01 * anatomy.peak_bytes
        ]
        return "; ".join([f"measured, {_THE_REST}", *([", ".join(of_it)] if of_it else [])])
    if held is Held.REST:
        return f"computed, {_THE_REST}"
    return "measured" if measured else "computed from shapes"


def peak_sentence(explanation: Explanation) -> str:
    anatomy = explanation.anatomy
    if anatomy is None:
        return f"The peak is {format_bytes(explanation.before.peak_bytes)}; what it is made of could not be seen."
    where = f", {_PHASES[anatomy.phase]}" if anatomy.phase else ""
    return f"The peak is {format_bytes(anatomy.peak_bytes)}{where}."


def anatomy_notes(explanation: Explanation) -> list[str]:
    anatomy = explanation.anatomy
    if anatomy is None:
        return []
    whole = explanation.before.peak_bytes
    share = anatomy.total_bytes / max(1, whole)
    notes = [f"Their sum is {share:.0%} of the {format_bytes(whole)} that the whole trial took."]
    if anatomy.why_computed:
        notes.append(f"Gradients and activations are computed from shapes: {anatomy.why_computed}.")
    if anatomy.largest_op:
        share = anatomy.largest_bytes / max(1, anatomy.peak_bytes)
        notes.append(f"The op that holds the most: {anatomy.largest_op}, {share:.0%} of the peak.")
    return notes


def layer_rows(explanation: Explanation) -> list[tuple[LayerMemory, float]]:
    """The layers that hold the most, each with its share of the peak."""
    anatomy = explanation.anatomy
    if anatomy is None:
        return []
    shares = [(layer, layer.total_bytes / max(1, anatomy.peak_bytes)) for layer in anatomy.layers[:MOST_LAYERS]]
    return [(layer, share) for layer, share in shares if share >= _LEAST_SHARE]


def growth_sentences(explanation: Explanation) -> list[str]:
    growth = explanation.growth
    if len(growth.points) < 2:
        return ["It ran at this batch alone, so how memory grows with the batch was not seen."]
    if growth.bytes_per_sample is None or growth.fixed_bytes is None:
        return ["Up to this batch memory hardly grows with it: what is always there takes the most."]
    tokens = f" of {growth.sequence_length} tokens" if growth.sequence_length else ""
    sample, fixed = format_bytes(growth.bytes_per_sample), format_bytes(max(0.0, growth.fixed_bytes))
    if growth.fixed_bytes > 0:
        sentences = [f"About {fixed} fixed, and {sample} for each sample{tokens}: peak = {fixed} + batch × {sample}."]
    else:
        sentences = [f"All of it grows with the batch: about {sample} for each sample{tokens}."]
    attends = explanation.anatomy and any("Attention" in name for name in explanation.anatomy.layer_classes)
    return sentences + _sequence_sentences(growth, ", as attention's scores do" if attends else "")


def _sequence_sentences(growth: Growth, reason: str) -> list[str]:
    doubling = growth.doubling
    if doubling is None:
        return []
    if doubling < _LINEAR:
        shape = "memory is linear in the sequence"
    elif doubling < _QUADRATIC:
        shape = f"in part it grows with the square of the sequence{reason}"
    else:
        shape = f"it grows with the square of the sequence{reason}"
    return [f"{_by_token(growth)} Doubling the sequence multiplies that by {doubling:.1f}: {shape}."]


def _by_token(growth: Growth) -> str:
    token, pair = format_bytes(growth.bytes_per_token or 0.0), growth.bytes_per_pair or 0.0
    if pair * (growth.sequence_length or 1) < _LEAST_OF_PAIRS * (growth.bytes_per_token or 0.0):
        return f"A sample takes about {token} for each token."
    return f"A sample takes about {token} for each token and {format_bytes(pair)} for each pair of them."


@dataclass(frozen=True, slots=True, kw_only=True)
class RemedyRow:
    name: str
    peak: str
    saves: str
    step: str
    slower: str
    batch: str
    lines: tuple[str, ...] = ()
    """What to put into the spec; what else to do, where no entry does it."""
    problem: str = ""
    helps: bool = False
    """Does it take less memory, or allow a larger batch, by more than two runs of the same differ?"""


def before_row(explanation: Explanation) -> RemedyRow:
    before = explanation.before
    return RemedyRow(
        name="as it is",
        peak=format_bytes(before.peak_bytes),
        saves="",
        step=f"{before.step_ms:.0f} ms",
        slower="",
        batch=_batch(before),
    )


def remedy_rows(explanation: Explanation) -> list[RemedyRow]:
    return [_remedy_row(remedy, explanation) for remedy in explanation.remedies]


def _remedy_row(remedy: TriedRemedy, explanation: Explanation) -> RemedyRow:
    cost, before, saved = remedy.cost, explanation.before, explanation.saved_bytes(remedy)
    if cost is None:
        return RemedyRow(name=remedy.name, peak="", saves="", step="", slower="", batch="", problem=remedy.problem)
    return RemedyRow(
        name=remedy.name,
        peak=format_bytes(cost.peak_bytes),
        saves=f"{-saved / max(1, before.peak_bytes):+.0%}" if saved else _NOTHING,
        step=f"{cost.step_ms:.0f} ms",
        slower=f"{cost.step_ms / before.step_ms - 1:+.0%}" if before.step_ms else "",
        batch=_batch(cost) + (" at a time" if remedy.micro_batches > 1 else ""),
        lines=lines_of(remedy),
        helps=saved > 0 or cost.largest_batch_size > _MORE * before.largest_batch_size,
    )


def _batch(cost: Cost) -> str:
    return f"{_CERTAINTIES[cost.certainty]}{cost.largest_batch_size:,}"


def remedy_notes(explanation: Explanation) -> list[str]:
    """How the table of remedies is to be read."""
    costs = [explanation.before, *(remedy.cost for remedy in explanation.remedies if remedy.cost)]
    notes = [f"“none”: within the {format_bytes(explanation.noise_bytes)} by which two runs of the same may differ"]
    notes = notes if any(row.saves == _NOTHING for row in remedy_rows(explanation)) else []
    seen = {cost.certainty for cost in costs}
    said = [_SAID_OF_BATCHES[certainty] for certainty in Certainty if certainty in seen]
    return [*notes, f"batch: {'; '.join(said)}"]


def lines_of(remedy: TriedRemedy) -> tuple[str, ...]:
    """The entries that turn the remedy on, as they stand in a spec."""
    return tuple(spec_line(key, value) for key, value in remedy.entries.items()) or (_IN_THE_MODEL,)
