"""A made-up explanation of a finished probe's answer."""

from __future__ import annotations

from oomtune.domain import Anatomy, Cost, Explanation, Growth, Held, LayerMemory, Part, Phase, ProbeResult, TriedRemedy

MIB = 1024**2


def explanation(result: ProbeResult) -> Explanation:
    assert result.best is not None
    sizes = {
        Held.WEIGHTS: 24 * MIB,
        Held.OPTIMIZER_STATE: 48 * MIB,
        Held.GRADIENTS: 24 * MIB,
        Held.ACTIVATIONS: 330 * MIB,
        Held.REST: 50 * MIB,
    }
    peak = sum(sizes.values())
    before = Cost(peak_bytes=peak, step_ms=128.0, largest_batch_size=560)
    return Explanation(
        spec=result.spec,
        device=result.device,
        budget=result.budget,
        candidate=result.best.candidate,
        chosen="the answer of the probe",
        before=before,
        anatomy=Anatomy(
            peak_bytes=peak,
            parts=tuple(Part(held=held, size_bytes=size, measured=True) for held, size in sizes.items()),
            layers=(
                LayerMemory(
                    name="attention<b>", class_name="MultiHeadAttention", weights_bytes=MIB, activations_bytes=210 * MIB
                ),
                LayerMemory(name="dense", class_name="Dense", weights_bytes=8 * MIB, activations_bytes=90 * MIB),
            ),
            layers_measured=True,
            phase=Phase.BACKWARD,
            largest_op="softmax_grad",
            largest_bytes=66 * MIB,
        ),
        growth=Growth(points=(), fixed_bytes=24.0 * MIB, bytes_per_sample=0.8 * MIB),
        remedies=(
            TriedRemedy(
                name="rematerialisation",
                entries={"search.remat": ["full"]},
                cost=Cost(peak_bytes=210 * MIB, step_ms=166.0, largest_batch_size=1270),
            ),
            TriedRemedy(name="XLA", entries={"training.jit_compile": True}, problem="it does not compile"),
        ),
        trials=5,
    )
