"""What to do when the host's memory ran out: mostly in what feeds the model."""

from __future__ import annotations

from collections.abc import Iterator

from oomtune.diagnosis.remedy import Remedy
from oomtune.diagnosis.result import Diagnosis
from oomtune.units import format_bytes


def on_the_host(diagnosis: Diagnosis) -> Iterator[Remedy]:
    """The host runs out in the input pipeline first, in what Python holds second."""
    array = diagnosis.tensor_shape is not None or diagnosis.bytes_requested
    if array and not diagnosis.allocator:  # Python's own, which has no name
        size = f" of {format_bytes(diagnosis.bytes_requested)}" if diagnosis.bytes_requested else ""
        yield Remedy(
            what=f"an array{size} is made at once: read from disk in batches instead",
            code="data = tf.data.Dataset.from_generator(samples, output_signature=signature).batch(32)",
        )
    yield Remedy(what="shuffle fewer samples at a time: the buffer holds whole samples", code="data.shuffle(1_000)")
    yield Remedy(what="prefetch little, and read fewer files at a time", code="data.prefetch(1)")
    yield Remedy(
        what="cache() without a file keeps the whole data set: give it one, or drop it", code='data.cache("/tmp/cache")'
    )
    if diagnosis.limit_bytes is not None:
        yield Remedy(what=f"or ask for more than the {format_bytes(diagnosis.limit_bytes)} that the job may use")
    else:
        yield Remedy(what="or give the machine, container or job more memory", code="free -g")
