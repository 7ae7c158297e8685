"""What a tensor's shape and op tell of its role: activations of a batch, attention scores, pictures, weights.

The op decides first. A shape alone is told apart only where hardly anything else has it: a table and a flattened batch,
or a kernel and the scores of a few heads, look the same.
"""

from __future__ import annotations

import re
from enum import Enum, auto

from oomtune.diagnosis.names import OPTIMIZER
from oomtune.diagnosis.result import Diagnosis

_WEIGHT_OPS = re.compile(
    r"/kernel\b|\bkernel/|initiali[sz]er|random_(?:uniform|normal)|RandomUniform|RandomStandardNormal|truncated_?normal"
    r"|assign|variable|varhandle|embeddings?$|regulari[sz]er|BackpropFilter|UnsortedSegmentSum|IndexedSlices",
    re.I,
)
# The gradient of a product by its second factor, which is the weight.
_WEIGHT_GRADIENT = re.compile(r"grad\w*/.*matmul(?:_grad)?/matmul_1$", re.I)
_BACKWARD = re.compile(r"grad|backprop|IndexedSlices|UnsortedSegmentSum", re.I)
_ATTENTION_OPS = re.compile(
    r"attention|attn|softmax|einsum|batch_?matmul|scores?\b|mha|multi_?head|query|key|value", re.I
)
_PICTURE_OPS = re.compile(
    r"conv|pool|bn\b|batch_?norm|upsampl|upscale|resiz|image|pad|patch|unet|mask\b|relu|pixel|depth_to_space", re.I
)
_OVER_TIME = re.compile(r"TensorArray|TensorList", re.I)
_WHOLE_DATA = re.compile(r"_EagerConst|^Const|zeros|TensorSliceDataset|IteratorGetNext|ConvertToEager", re.I)
_BYTES = {"int8", "uint8"}
_LONG = 128
_LARGEST_KERNEL = 11
# Beyond this a first dimension is rows of something flattened, or a vocabulary; hardly a batch.
_LARGEST_BATCH = 4096


class Role(Enum):
    UNKNOWN = auto()
    BATCH = auto()
    ROWS = auto()
    """Batch and length in one dimension, or a table's rows."""
    ATTENTION = auto()
    PICTURE = auto()
    WORKSPACE = auto()
    """Scratch space of a library, counted in bytes; it grows with the batch."""
    WEIGHT = auto()
    OPTIMIZER = auto()
    DATA = auto()
    """Data that goes to the device, perhaps all of it at once."""


def role_of(diagnosis: Diagnosis) -> Role:
    shape, op = diagnosis.tensor_shape, diagnosis.op or ""
    if diagnosis.layer == OPTIMIZER:
        return Role.OPTIMIZER
    if shape is None:
        return Role.DATA if _WHOLE_DATA.search(op) else Role.UNKNOWN
    if len(shape) == 1 and diagnosis.dtype in _BYTES:
        return Role.WORKSPACE
    if _WEIGHT_OPS.search(op) or (len(shape) == 2 and _WEIGHT_GRADIENT.search(op)) or _is_kernel(shape, op):
        return Role.WEIGHT
    return _role_of_activations(shape, op)


def _role_of_activations(shape: tuple[int, ...], op: str) -> Role:
    if len(shape) < 2:
        return Role.UNKNOWN
    if shape[0] > _LARGEST_BATCH:
        return Role.ROWS
    if _is_attention(shape, op):
        return Role.ATTENTION
    return Role.PICTURE if _is_picture(shape, op) else Role.BATCH


def is_made_once(diagnosis: Diagnosis) -> bool:
    """A weight as it is made, before there is a batch? Gradients of weights come when activations fill the memory."""
    return role_of(diagnosis) is Role.WEIGHT and not _BACKWARD.search(diagnosis.op or "")


def batch_in(diagnosis: Diagnosis) -> int | None:
    """The batch, where one dimension of the shape can be nothing else."""
    shape, role = diagnosis.tensor_shape, role_of(diagnosis)
    if shape is None or role not in (Role.BATCH, Role.PICTURE, Role.ATTENTION):
        return None
    if role is Role.ATTENTION and len(shape) == 3:
        return None  # or the batch times the heads
    over_time = len(shape) >= 3 and _OVER_TIME.search(diagnosis.op or "") is not None
    return shape[1] if over_time else shape[0]


def length_in(diagnosis: Diagnosis) -> int | None:
    """The length of sequences, where one dimension may be it."""
    shape, role = diagnosis.tensor_shape or (), role_of(diagnosis)
    if role is Role.ATTENTION:
        return shape[-1]
    if _PICTURE_OPS.search(diagnosis.op or ""):
        return None
    in_heads = len(shape) == 4 and _ATTENTION_OPS.search(diagnosis.op or "") is not None
    if role is Role.BATCH and (len(shape) == 3 or in_heads):
        over_time = _OVER_TIME.search(diagnosis.op or "") is not None
        length = shape[0] if over_time else shape[1]
        return length if length >= _LONG else None
    return None


def _is_kernel(shape: tuple[int, ...], op: str) -> bool:
    """Two or three equal small numbers before the channels, and no op that makes activations."""
    sides, channels = shape[:-2], shape[-2:]
    if len(shape) not in (4, 5) or _ATTENTION_OPS.search(op) or _PICTURE_OPS.search(op):
        return False
    if len(set(sides)) > 1 or sides[0] > _LARGEST_KERNEL or min(channels) <= _LARGEST_KERNEL:
        return False
    return sides[0] % 2 == 1 or channels[0] != channels[1]


def _is_attention(shape: tuple[int, ...], op: str) -> bool:
    """Scores of every position against every other. Pictures with channels first end in two equal numbers too."""
    if len(shape) not in (3, 4) or shape[-1] != shape[-2] or shape[-1] < _LONG:
        return False
    if _ATTENTION_OPS.search(op):
        return True
    if _PICTURE_OPS.search(op):
        return False
    if len(shape) == 3:
        return "/" not in op
    heads = shape[1]
    return shape[-1] % 64 == 0 and 4 <= heads <= 64 and heads % 2 == 0 and shape[-1] >= 4 * heads


def _is_picture(shape: tuple[int, ...], op: str) -> bool:
    """Height and width that are about the same, behind the batch or at the end."""
    if len(shape) < 4 or _ATTENTION_OPS.search(op):
        return False
    if _PICTURE_OPS.search(op) or len(shape) > 4:
        return True
    return any(max(sides) <= 4 * min(sides) for sides in (shape[1:3], shape[2:4]))
