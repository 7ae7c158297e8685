"""What the names in TensorFlow's messages stand for: types, ops, and the layers that ops belong to."""

from __future__ import annotations

import math
import re

_TYPES = {"float": "float32", "half": "float16", "double": "float64", "int": "int32", "complex": "complex64"}
# XLA's: f32, bf16, s32, u8, pred.
_XLA_TYPES = {"f": "float", "bf": "bfloat", "s": "int", "u": "uint", "c": "complex"}
_XLA = re.compile(r"(bf|[fsuc])(\d+)$")
_BITS = re.compile(r"(\d+)(?:_\w+)?$")  # float32, int8, complex64, float8_e4m3fn
OPTIMIZER = "the optimizer"
_OPTIMIZERS = re.compile(
    r"^(?:keras_)?(?:(?:lazy)?adam\w?|nadam|adamax|adagrad|adadelta|adafactor|rmsprop|sgd|momentum|ftrl|lamb|lion|novograd)"
    r"(?:_optimizer|optimizer)?(?:_\d+)?$|^ResourceApply|^ResourceSparseApply|^Apply(?:Adam|Momentum|RMS|Ada)",
    re.I,
)
# Parts of a name that say how an op is run, not what it is part of.
_WRAPPERS = re.compile(
    r"^(?:gradient_tape|gradients(?:_\d+)?|statefulpartitionedcall(?:_\d+)?|partitionedcall(?:_\d+)?|train_step|training"
    r"|(?:functional|model|sequential)(?:_\d+)*|replica_?\d+|tower_?\d+|gpu_?\d+|jit\(.*\)|__inference\S*|compute_loss"
    r"|jit__\w+|cluster\S*|.*_grad|loss|transpose\(.*\)|jvp\(.*\)|\^?_.*)$",
    re.I,
)
# Parts that are an op, or what Keras calls one, with ops of its own below it.
_OPS = re.compile(
    r"^(?:(?:Depthwise)?Conv\d+D(?:Backprop\w+)?|(?:Batch)?MatMul(?:V\d)?|BiasAdd(?:Grad)?|Tensordot|Einsum"
    r"|Tensor(?:Array|List)\w*|FusedBatchNorm\w*|(?:Max|Avg)Pool\w*|(?:Log)?Softmax|(?:Leaky)?Relu\d?(?:Grad)?|CudnnRNN\w*"
    r"|(?:Resource)?Gather(?:V\d|Nd)?|Transpose|Reshape|Concat(?:V\d)?|convolution|einsum|moments|batchnorm"
    r"|embedding_lookup)(?:_\d+)?$"
)
# Keras 3 enters the scope of a layer again, and TensorFlow counts how often: `conv2d_3_1`.
_COUNTED = re.compile(r"(_\d+)_\d+$")
_KERAS_2 = re.compile(r"^model(?:_\d+)?$")
_LOOPS = {"while", "body", "cond", "rnn_loop", "while_1", "while_body", "while_cond"}


def dtype_of(name: str) -> str:
    """The type as NumPy and Keras call it."""
    name = name.lower().removeprefix("dt_")
    if xla := _XLA.match(name):
        return _XLA_TYPES[xla[1]] + xla[2]
    return "bool" if name == "pred" else _TYPES.get(name, name)


def size_of(shape: tuple[int, ...], dtype: str | None) -> int | None:
    """What a tensor takes, when its type has a size."""
    if dtype is None:
        return None
    bits = 8 if dtype == "bool" else 16 if dtype == "bfloat16" else None
    match = _BITS.search(dtype)
    if bits is None and match:
        bits = int(match[1])
    return None if bits is None else math.prod(shape) * bits // 8


def layer_of(op: str) -> str | None:
    """The layer, or the path of layers, that an op's name places it in."""
    parts = [part for part in op.strip("/").split("/") if part]
    backward = [part for part in parts[1:] if part.lower().startswith("gradients")]
    if any(_OPTIMIZERS.match(part) for part in parts) and not backward:
        return OPTIMIZER
    if any(_OPTIMIZERS.match(part) for part in parts[:-1]):
        parts = parts[parts.index(backward[0]) + 1 :] or parts
    keras_2 = any(_KERAS_2.match(part) for part in parts)
    named: list[str] = []
    for part in parts[:-1]:
        if part.lower() in _LOOPS or (named and _OPS.match(part)):
            break
        if not _WRAPPERS.match(part):
            named.append(part if keras_2 else _COUNTED.sub(r"\1", part))
    return "/".join(named) or None
