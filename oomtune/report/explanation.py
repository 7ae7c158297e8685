"""An explanation as rows and sentences, shared by the terminal, the HTML page and the JSON document."""

from __future__ import annotations

from dataclasses import dataclass

from oomtune.diagnosis.spec_entry import spec_line
from oomtune.domain import Anatomy, Certainty, Cost, Explanation, Growth, Held, LayerMemory, Phase, TriedRemedy
from oomtune.units import format_bytes

_MOST_LAYERS = 8
_LEAST_SHARE = 0.001
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
_NO_SAVING = "none"
_CERTAINTY_SIGNS = {Certainty.RAN: "", Certainty.AT_LEAST: "≥", Certainty.NO_LARGER: "=", Certainty.PREDICTED: "~"}
_CERTAINTY_NOTES = {
    Certainty.RAN: "it ran for a few steps in its own process, and a few percent more did not fit",
    Certainty.AT_LEAST: "“≥” ran in the same way, and more may fit",
    Certainty.NO_LARGER: "“=” ran in the same way, and a larger batch fails for a reason other than memory",
    Certainty.PREDICTED: "“~” is predicted, on the cautious side",
}
# A batch that grows by less than this factor may have grown by chance.
_LARGER_BATCH = 1.1
_CHANGE_THE_MODEL = "in the model: replace LSTM with GRU"
# How much memory grows when the sequence doubles. Up to 2.6 the excess over 2 is noise: memory is linear.
_LINEAR = 2.6
_QUADRATIC = 3.4
# Memory per pair of tokens that is below this share of the memory per token is not worth mentioning.
_LEAST_SHARE_OF_PAIRS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRow:
    name: str
    size_bytes: int
    size: str
    share: float
    origin: str
    """Whether the size was measured or computed, and how."""


def explanation_title(explanation: Explanation) -> str:
    return f"at {explanation.candidate} ({explanation.chosen})"


def part_rows(explanation: Explanation) -> list[PartRow]:
    """Return the parts of the peak, the largest first."""
    anatomy = explanation.anatomy
    if anatomy is None:
        return []
    rows = [
        PartRow(
            name=_PARTS[part.held],
            size_bytes=part.size_bytes,
            size=format_bytes(part.size_bytes),
            share=part.size_bytes / max(1, anatomy.total_bytes),
            origin=_origin(anatomy, part.held, measured=part.measured),
        )
        for part in anatomy.parts
    ]
    return sorted(rows, key=lambda row: -row.share)


def _origin(anatomy: Anatomy, held: Held, *, measured: bool) -> str:
    if held in (Held.WEIGHTS, Held.OPTIMIZER_STATE):
        return "computed, the sum of the variables"
    if held is not Held.REST:
        return "measured" if measured else "computed from shapes"
    if not measured:
        return "computed, the remainder"
    phases = [
        f"{name} {format_bytes(size)}"
        for name, size in (("backward pass", anatomy.backward_bytes), ("optimizer's update", anatomy.update_bytes))
        if size > 0.01 * anatomy.peak_bytes
    ]
    return "; ".join(["measured, the remainder", *([", ".join(phases)] if phases else [])])


def peak_sentence(explanation: Explanation) -> str:
    anatomy = explanation.anatomy
    if anatomy is None:
        return f"The peak is {format_bytes(explanation.before.peak_bytes)}; its parts could not be measured."
    phase = f", {_PHASES[anatomy.phase]}" if anatomy.phase else ""
    return f"The peak is {format_bytes(anatomy.peak_bytes)}{phase}."


def anatomy_notes(explanation: Explanation) -> list[str]:
    anatomy = explanation.anatomy
    if anatomy is None:
        return []
    trial_bytes = explanation.before.peak_bytes
    share = anatomy.total_bytes / max(1, trial_bytes)
    notes = [f"The parts add up to {share:.0%} of the {format_bytes(trial_bytes)} that the whole trial used."]
    if anatomy.why_computed:
        notes.append(f"Gradients and activations are computed from shapes: {anatomy.why_computed}.")
    if anatomy.largest_op:
        share = anatomy.largest_bytes / max(1, anatomy.peak_bytes)
        notes.append(f"The op that holds the most: {anatomy.largest_op}, {share:.0%} of the peak.")
    return notes


def layer_rows(explanation: Explanation) -> list[tuple[LayerMemory, float]]:
    """Return the layers that hold the most, each with its share of the peak."""
    anatomy = explanation.anatomy
    if anatomy is None:
        return []
    shares = [(layer, layer.total_bytes / max(1, anatomy.peak_bytes)) for layer in anatomy.layers[:_MOST_LAYERS]]
    return [(layer, share) for layer, share in shares if share >= _LEAST_SHARE]


def growth_sentences(explanation: Explanation) -> list[str]:
    growth = explanation.growth
    if len(growth.points) < 2:
        return ["Only this batch ran, so how memory grows with the batch is unknown."]
    if growth.bytes_per_sample is None or growth.fixed_bytes is None:
        return ["Up to this batch, memory hardly grows with it: the fixed part dominates."]
    tokens = f" of {growth.sequence_length} tokens" if growth.sequence_length else ""
    sample, fixed = format_bytes(growth.bytes_per_sample), format_bytes(max(0.0, growth.fixed_bytes))
    if growth.fixed_bytes > 0:
        sentences = [f"About {fixed} fixed, and {sample} for each sample{tokens}: peak = {fixed} + batch × {sample}."]
    else:
        sentences = [f"All of it grows with the batch: about {sample} for each sample{tokens}."]
    attends = explanation.anatomy and any("Attention" in name for name in explanation.anatomy.layer_classes)
    return sentences + _sequence_sentences(growth, ", as attention scores do" if attends else "")


def _sequence_sentences(growth: Growth, reason: str) -> list[str]:
    doubling = growth.doubling
    if doubling is None:
        return []
    if doubling < _LINEAR:
        shape = "memory is linear in the sequence"
    elif doubling < _QUADRATIC:
        shape = f"part of it grows with the square of the sequence{reason}"
    else:
        shape = f"it grows with the square of the sequence{reason}"
    return [f"{_token_sentence(growth)} Doubling the sequence multiplies that by {doubling:.1f}: {shape}."]


def _token_sentence(growth: Growth) -> str:
    token, pair = format_bytes(growth.bytes_per_token or 0.0), growth.bytes_per_pair or 0.0
    if pair * (growth.sequence_length or 1) < _LEAST_SHARE_OF_PAIRS * (growth.bytes_per_token or 0.0):
        return f"A sample takes about {token} for each token."
    return f"A sample takes about {token} for each token and {format_bytes(pair)} for each pair of tokens."


@dataclass(frozen=True, slots=True, kw_only=True)
class RemedyRow:
    name: str
    peak: str = ""
    saves: str = ""
    step: str = ""
    slower: str = ""
    batch: str = ""
    lines: tuple[str, ...] = ()
    """The lines to add to the spec, or the change to the model if no spec entry makes it."""
    problem: str = ""
    """The reason why the remedy could not be measured."""
    helps: bool = False
    """Whether the remedy saves memory or allows a larger batch, beyond the noise between two equal runs."""


def before_row(explanation: Explanation) -> RemedyRow:
    before = explanation.before
    return RemedyRow(
        name="unchanged",
        peak=format_bytes(before.peak_bytes),
        step=f"{before.step_ms:.0f} ms",
        batch=_batch(before),
    )


def remedy_rows(explanation: Explanation) -> list[RemedyRow]:
    return [_remedy_row(remedy, explanation) for remedy in explanation.remedies]


def _remedy_row(remedy: TriedRemedy, explanation: Explanation) -> RemedyRow:
    cost, before, saved_bytes = remedy.cost, explanation.before, explanation.saved_bytes(remedy)
    if cost is None:
        return RemedyRow(name=remedy.name, problem=remedy.problem)
    return RemedyRow(
        name=remedy.name,
        peak=format_bytes(cost.peak_bytes),
        saves=f"{-saved_bytes / max(1, before.peak_bytes):+.0%}" if saved_bytes else _NO_SAVING,
        step=f"{cost.step_ms:.0f} ms",
        slower=f"{cost.step_ms / before.step_ms - 1:+.0%}" if before.step_ms else "",
        batch=_batch(cost) + (" at a time" if remedy.micro_batches > 1 else ""),
        lines=spec_lines(remedy),
        helps=saved_bytes > 0 or cost.largest_batch_size > _LARGER_BATCH * before.largest_batch_size,
    )


def _batch(cost: Cost) -> str:
    return f"{_CERTAINTY_SIGNS[cost.certainty]}{cost.largest_batch_size:,}"


def remedy_notes(explanation: Explanation) -> list[str]:
    """Return notes that explain the table of remedies."""
    noise = f"“none”: within the {format_bytes(explanation.noise_bytes)} by which two equal runs may differ"
    notes = [noise] if any(row.saves == _NO_SAVING for row in remedy_rows(explanation)) else []
    costs = [explanation.before, *(remedy.cost for remedy in explanation.remedies if remedy.cost)]
    certainties = {cost.certainty for cost in costs}
    batch_notes = [_CERTAINTY_NOTES[certainty] for certainty in Certainty if certainty in certainties]
    return [*notes, f"batch: {'; '.join(batch_notes)}"]


def spec_lines(remedy: TriedRemedy) -> tuple[str, ...]:
    """Return the spec entries that apply the remedy, or the change to the model that does."""
    return tuple(spec_line(key, value) for key, value in remedy.entries.items()) or (_CHANGE_THE_MODEL,)
