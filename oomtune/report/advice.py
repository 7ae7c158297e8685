"""What to do when nothing fits: three things, for this spec, in the order of what they cost."""

from __future__ import annotations

import math

from oomtune.domain import Budget, Candidate, ClassConfig, ProbeSpec
from oomtune.units import MIB, format_bytes

# The allocator can't use every byte: with little room to spare it keeps larger chunks than were asked for.
_SLACK = 1.3
_STATELESS = {"sgd", "adafactor", "lion"}


def what_to_try(spec: ProbeSpec, budget: Budget, smallest: Candidate, needed_bytes: int | None) -> list[str]:
    """The first three remedies that this spec has not used yet."""
    remedies = []
    if needed_bytes is not None:
        limit = math.ceil(needed_bytes * _SLACK / (1 - budget.headroom) / MIB)
        remedies.append(f"give it more: --memory-limit {limit}MiB should hold this configuration")
    else:
        remedies.append(f"give it more than {format_bytes(budget.limit_bytes)}: --memory-limit")
    if smallest.batch_size > 1:
        remedies.append(f"allow smaller batches than {smallest.batch_size} in search.batch_size")
    if smallest.sequence_length is not None and smallest.sequence_length > 1:
        remedies.append(f"allow shorter sequences than {smallest.sequence_length} in search.sequence_length")
    if set(spec.space.precisions) == {"float32"}:
        remedies.append("allow half precision: --set 'search.precision=[float32, mixed_bfloat16, mixed_float16]'")
    optimizer = spec.training.optimizer
    name = optimizer.class_name if isinstance(optimizer, ClassConfig) else optimizer
    if name.lower() not in _STATELESS:
        remedies.append(f"a lighter optimizer than {name} keeps less per weight: --set training.optimizer=sgd")
    remedies.append("make the model smaller: fewer units, layers or embedding rows")
    remedies.append("probe on a device with more memory")
    return remedies[:3]
