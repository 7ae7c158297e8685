"""Less at a time, as the shape of a tensor in a log suggests it: a smaller batch, shorter sequences, parts."""

from __future__ import annotations

import math
from collections.abc import Iterator

from oomtune.diagnosis.names import size_of
from oomtune.diagnosis.remedy import Remedy
from oomtune.diagnosis.result import Diagnosis
from oomtune.diagnosis.shapes import Role, batch_in, length_in, role_of
from oomtune.units import format_bytes

_HEADROOM = 0.95
_SEVERAL = {Role.ROWS: "the batch times the length, or a table's rows", Role.ATTENTION: "the batch times the heads"}


def smaller_batch(diagnosis: Diagnosis) -> Iterator[Remedy]:
    """The batch as the shape shows it, and a smaller one; or only that it be smaller."""
    batch, role = batch_in(diagnosis), role_of(diagnosis)
    if batch is None:
        shape = diagnosis.tensor_shape
        first = f": {shape[0]} may be {_SEVERAL[role]}" if shape and role in _SEVERAL else ""
        yield Remedy(
            what=f"lower the batch{first}; halve it until it runs, or let oomtune find the largest",
            code="oomtune probe model.yaml",
        )
    elif batch > 1:
        size, why = _batch_that_fits(diagnosis, batch)
        place = "first" if diagnosis.tensor_shape and diagnosis.tensor_shape[0] == batch else "second"
        yield Remedy(
            what=f"lower the batch: the {place} dimension is {batch}; try {size}{why}; "
            "`oomtune probe` finds the largest",
            key="search.batch_size",
            value={"min": 1, "max": batch - 1},
            code=f"model.fit(..., batch_size={size})",
        )
        about = "about " if batch % size else ""
        yield Remedy(
            what=f"keep the effect of {about}{batch} samples a step by accumulating gradients",
            key="training.effective_batch_size",
            value=batch,
            code=f"keras.optimizers.Adam(gradient_accumulation_steps={math.ceil(batch / size)})",
        )


def _batch_that_fits(diagnosis: Diagnosis, batch: int) -> tuple[int, str]:
    """Half, or less where the figures say that half is still too much; a power of two if that is what it was."""
    size = batch // 2
    why = ""
    limit, used, asked = diagnosis.limit_bytes, diagnosis.in_use_bytes, diagnosis.bytes_requested
    if limit and used is not None and asked:
        # What is planned and not yet in use, as XLA counts it, has the request in it.
        more = asked if used <= limit else 0
        fits = int(batch * limit * _HEADROOM / (used + more))
        if 0 < fits < batch:
            rounded = fits // 8 * 8 or fits
            size = 2 ** (fits.bit_length() - 1) if batch & (batch - 1) == 0 else rounded
            and_more = f" and {format_bytes(more)} more were" if more else " was"
            why = f", since {format_bytes(used)}{and_more} wanted of {format_bytes(limit)}"
    return max(1, size), why


def shorter(diagnosis: Diagnosis) -> Iterator[Remedy]:
    """Shorter sequences, where a dimension may be their length."""
    length = length_in(diagnosis)
    if length is None:
        return
    scores = role_of(diagnosis) is Role.ATTENTION
    why = (
        f"{length} × {length} are attention scores, which grow with the square of the length"
        if scores
        else f"one dimension, {length}, may be the length"
    )
    yield Remedy(
        what=f"shorten the sequences: {why}",
        key="search.sequence_length",
        value=[length // 4, length // 2],
        code=f"keras.utils.pad_sequences(tokens, maxlen={length // 2})",
    )


def smaller_tensor(diagnosis: Diagnosis) -> Remedy:
    """For a tensor that is neither a batch nor what feeds one."""
    shape = diagnosis.tensor_shape or ()
    takes = size_of(shape, diagnosis.dtype)
    size = f" of {format_bytes(takes)}" if takes else ""
    product = "matmul" in (diagnosis.op or "").lower()
    return Remedy(
        what=f"{list(shape)} is one tensor{size}: make it smaller, or compute it in parts",
        code="for rows in tf.split(left, 8): use(tf.matmul(rows, right))" if product else "",
    )
