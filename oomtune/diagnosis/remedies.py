"""What to do about a failure, in order: for a log as for a trial of a probe in which nothing fits."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from oomtune.diagnosis.batch_remedies import shorter, smaller_batch, smaller_tensor
from oomtune.diagnosis.cause_remedies import not_memory
from oomtune.diagnosis.host_remedies import on_the_host
from oomtune.diagnosis.names import OPTIMIZER
from oomtune.diagnosis.remedy import Remedy
from oomtune.diagnosis.result import Diagnosis
from oomtune.diagnosis.shapes import Role, batch_in, is_made_once, role_of
from oomtune.domain import Budget, Candidate, ClassConfig, ProbeSpec, RematMode, is_half
from oomtune.units import MIB, format_bytes

# The allocator can't use every byte: with little room to spare it keeps larger chunks than were asked for.
_SLACK = 1.3
_STATELESS = {"sgd", "adafactor", "lion"}
_HALF = ["float32", "mixed_bfloat16", "mixed_float16"]
_ASYNC = Remedy(
    what="there was room, but not in one piece: let the driver join the pieces",
    key="device.allocator",
    value="cuda_malloc_async",
    code="TF_GPU_ALLOCATOR=cuda_malloc_async python train.py",
)
_LARGER_DEVICE = Remedy(what="use a device with more memory")
_HELD = "another process, or an earlier run that lives on, holds the card: look who, and end it"
_FEEDS = re.compile(r"PyFunc|Iterator|Dataset", re.I)
_METAL = re.compile(r"metal|iogpu|\bmps\b", re.I)
_ROCM = re.compile(r"\bhip|rocm|miopen|rocblas|amdgpu", re.I)
_GROW = Remedy(
    what="leave room for what is outside TensorFlow's own pool",
    code='tf.config.experimental.set_memory_growth(tf.config.list_physical_devices("GPU")[0], True)',
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What is known of the trial that failed, and what its spec leaves to try."""

    spec: ProbeSpec
    budget: Budget
    candidate: Candidate
    needed_bytes: int | None = None
    flags: tuple[str, ...] = ()
    """Those that asked for this candidate, whatever the spec says."""

    @property
    def optimizer(self) -> str:
        named = self.candidate.optimizer or self.spec.training.optimizer
        return named.class_name if isinstance(named, ClassConfig) else named


def remedies(diagnosis: Diagnosis, tried: Tried | None = None) -> list[Remedy]:
    """What to do about this failure, the most promising first; what the spec has done already is left out."""
    if tried is None and not diagnosis.is_memory:
        return list(not_memory(diagnosis))
    found = _on_the_host(diagnosis) if diagnosis.kind == "host_oom" else _on_the_device(diagnosis, tried)
    first: dict[str, Remedy] = {}
    for remedy in found:
        first.setdefault(remedy.what, remedy)
    return list(first.values())[: 5 if tried is None or diagnosis.kind == "host_oom" else 3]


def _on_the_host(diagnosis: Diagnosis) -> Iterator[Remedy]:
    """A model that trains on the CPU runs out there as on a card; all else is what feeds it."""
    computed = bool(diagnosis.op) and not _FEEDS.search(diagnosis.op or "")
    if computed and batch_in(diagnosis):
        yield from smaller_batch(diagnosis)
        yield from shorter(diagnosis)
    elif computed and diagnosis.tensor_shape:
        yield smaller_tensor(diagnosis)
    yield from on_the_host(diagnosis)


def _on_the_device(diagnosis: Diagnosis, tried: Tried | None) -> Iterator[Remedy]:
    role = role_of(diagnosis)
    if tried is not None:
        yield _more_memory(tried)
    yield from _not_the_model(diagnosis, tried)
    if role is Role.DATA:
        yield Remedy(
            what="the data goes to the card at once: keep it on the host and send batches",
            code='with tf.device("CPU:0"): data = tf.data.Dataset.from_tensor_slices(arrays).batch(32)',
        )
    # A shape alone may also be that of a gradient, and a trial gets as far as those.
    if is_made_once(diagnosis) and (tried is None or diagnosis.op):
        yield from _for_a_weight(diagnosis, tried)
        return
    if role is Role.OPTIMIZER:
        yield from _lighter_optimizer(tried)
    if role in (Role.WEIGHT, Role.OPTIMIZER):
        yield from _smaller_model(diagnosis)
    if role is Role.ATTENTION:
        yield from shorter(diagnosis) if tried is None else _shorter_than_tried(tried)
        yield from _remat(tried)
    yield from _less_at_a_time(diagnosis, role) if tried is None else _less_than_tried(diagnosis, tried)
    yield from _lighter_optimizer(tried)
    yield Remedy(what="make the model smaller: fewer units, layers or embedding rows")
    yield _LARGER_DEVICE


def _less_at_a_time(diagnosis: Diagnosis, role: Role) -> Iterator[Remedy]:
    yield from smaller_batch(diagnosis)
    yield from shorter(diagnosis)
    if role is Role.WORKSPACE:
        yield Remedy(what="it is scratch space of a library, which grows with the batch and with the layer's width")
    if role is Role.PICTURE:
        yield Remedy(what="smaller pictures: memory goes with their area", code="keras.layers.Resizing(height, width)")
    yield from _half(diagnosis, None)
    if role in (Role.BATCH, Role.PICTURE, Role.ROWS):
        yield from _remat(None)


def _less_than_tried(diagnosis: Diagnosis, tried: Tried) -> Iterator[Remedy]:
    """What a trial holds is mostly activations, whichever tensor came last. First what trains the same model alike."""
    yield from _smaller_than_tried(tried)
    yield from _remat(tried)
    yield from _half(diagnosis, tried)
    yield from _shorter_than_tried(tried)


def _for_a_weight(diagnosis: Diagnosis, tried: Tried | None) -> Iterator[Remedy]:
    """It is as large whatever the batch and the precision of activations; but the optimizer keeps more of its size."""
    yield from _smaller_model(diagnosis)
    yield from _lighter_optimizer(tried)
    yield _LARGER_DEVICE


def _more_memory(tried: Tried) -> Remedy:
    if tried.needed_bytes is None:
        return Remedy(what=f"give it more than {format_bytes(tried.budget.limit_bytes)}", code="--memory-limit")
    limit = math.ceil(tried.needed_bytes * _SLACK / (1 - tried.budget.headroom) / MIB)
    return Remedy(what="give it more, which should hold this configuration", code=f"--memory-limit {limit}MiB")


def _not_the_model(diagnosis: Diagnosis, tried: Tried | None) -> Iterator[Remedy]:
    """Room in pieces, or a card that others fill: no batch is small enough for that."""
    free, asked = diagnosis.free_bytes, diagnosis.bytes_requested
    joined = "async" in (diagnosis.allocator or "").lower()  # the driver has done so already
    in_pieces = free is not None and asked is not None and free >= asked and not joined
    if tried is not None:
        if in_pieces and tried.spec.device.kind != "cpu" and tried.spec.device.allocator == "default":
            yield _ASYNC
        return
    tiny = diagnosis.limit_bytes is not None and diagnosis.limit_bytes < 1024 * MIB
    if diagnosis.held_elsewhere or tiny:
        yield Remedy(what=_HELD, code=_monitor(diagnosis))
        if diagnosis.held_elsewhere and not _METAL.search(diagnosis.line):
            yield _GROW
    if in_pieces:
        yield _ASYNC


def _monitor(diagnosis: Diagnosis) -> str:
    """What shows who holds the memory, on this vendor's machines."""
    if _METAL.search(diagnosis.line):
        return "top -o mem"
    return "rocm-smi --showpids" if _ROCM.search(diagnosis.line) else "nvidia-smi"


def _smaller_than_tried(tried: Tried) -> Iterator[Remedy]:
    size = tried.candidate.batch_size
    if size <= 1:
        return
    if "--batch-size" in tried.flags:
        yield Remedy(what=f"ask for a smaller batch than {size}", code=f"--batch-size {size // 2}")
        return
    floor = size <= tried.spec.min_batch_size
    yield Remedy(
        what=f"allow smaller batches than {size}",
        key="search.min_batch_size" if floor else "search.batch_size",
        value=size // 2 if floor else {"max": size - 1},
    )


def _shorter_than_tried(tried: Tried) -> Iterator[Remedy]:
    length = tried.candidate.sequence_length
    if length is None or length <= 1:
        return
    if "--sequence-length" in tried.flags:
        yield Remedy(what=f"ask for shorter sequences than {length}", code=f"--sequence-length {length // 2}")
        return
    floor = length <= tried.spec.min_sequence_length
    yield Remedy(
        what=f"allow shorter sequences than {length}",
        key="search.min_sequence_length" if floor else "search.sequence_length",
        value=length // 2 if floor else [length // 2],
    )


def _half(diagnosis: Diagnosis, tried: Tried | None) -> Iterator[Remedy]:
    used = tried is not None and any(is_half(name) for name in tried.spec.space.precisions)
    if not used and diagnosis.dtype in (None, "float32", "float64"):
        code = 'keras.mixed_precision.set_global_policy("mixed_float16")'
        what = "allow half precision: activations take half the room"
        yield Remedy(what=what, key="search.precision", value=_HALF, code=code)


def _remat(tried: Tried | None) -> Iterator[Remedy]:
    if tried is None or (set(tried.spec.space.remats) == {RematMode.NONE} and not tried.spec.model.trains_itself):
        yield Remedy(
            what="checkpoint: compute activations again in the backward pass",
            key="search.remat",
            value=["none", "full"],
            code='import oomtune.keras; oomtune.keras.rematerialise(model, oomtune.load_tuned("model.tuned.yaml"))',
        )


def _lighter_optimizer(tried: Tried | None) -> Iterator[Remedy]:
    if tried is not None and tried.optimizer.lower() in _STATELESS:
        return
    than = "Adam, which keeps two more values" if tried is None else f"{tried.optimizer}, which keeps values of its own"
    yield Remedy(
        what=f"a lighter optimizer than {than} for each weight",
        key="training.optimizer",
        value="sgd",
        code="model.compile(optimizer=keras.optimizers.SGD(momentum=0.0), ...)",
    )


def _smaller_model(diagnosis: Diagnosis) -> Iterator[Remedy]:
    shape = diagnosis.tensor_shape
    if shape is None:
        return
    whose = "an optimizer's slot for a weight" if diagnosis.layer == OPTIMIZER else "likely a weight"
    rows = f": fewer rows than {shape[0]}" if len(shape) == 2 else ""
    yield Remedy(what=f"{list(shape)} is {whose}, which no smaller batch makes smaller; make the model smaller{rows}")
