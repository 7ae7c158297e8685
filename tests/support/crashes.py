"""A crash of any shape, as TensorFlow words it, and what is advised for it."""

from __future__ import annotations

from oomtune.diagnosis import Diagnosis, classify
from oomtune.diagnosis.remedies import remedies

GIB = 1024**3
GPU = "/job:localhost/replica:0/task:0/device:GPU:0"
DUMP = """\
2017-06-07 08:09:10.1: W tensorflow/core/common_runtime/bfc_allocator.cc:273] Allocator (GPU_0_bfc) ran out of memory \
trying to allocate 1.00GiB.  Current allocation summary follows.
2017-06-07 08:09:10.2: I tensorflow/core/common_runtime/bfc_allocator.cc:700] Sum Total of in-use chunks: 7.50GiB
2017-06-07 08:09:10.3: I tensorflow/core/common_runtime/bfc_allocator.cc:702] Stats:
Limit:                  8589934592
InUse:                  8053063680
MaxInUse:               8053063680
NumAllocs:                     777
"""


def oom(shape: list[int], op: str = "", dump: str = "", dtype: str = "float") -> Diagnosis:
    node = f"\n\t [[{{{{node {op}}}}}]]" if op else ""
    sizes = ",".join(map(str, shape))
    return classify(
        f"{dump}ResourceExhaustedError: OOM when allocating tensor with shape[{sizes}] and type {dtype} on {GPU} "
        f"by allocator GPU_0_bfc{node}"
    )


def advice(diagnosis: Diagnosis) -> list[str]:
    return [" | ".join((one.what, one.spec_line, one.code)) for one in remedies(diagnosis)]
