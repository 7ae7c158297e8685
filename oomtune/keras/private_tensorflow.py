"""TensorFlow's private names that oomtune needs. No other module imports from `tensorflow.python`.

`tests/unit/keras/test_private_names.py` checks each name, so a release that drops one fails there and says which.
"""

from __future__ import annotations

import tensorflow as tf
from tensorflow.python.client.device_lib import list_local_devices
from tensorflow.python.eager import record, tape
from tensorflow.python.eager.polymorphic_function import polymorphic_function
from tensorflow.python.framework import op_def_registry
from tensorflow.python.lib.io import file_io
from tensorflow.python.ops import script_ops

FuncGraph = tf.__internal__.FuncGraph
EagerTensor = tf.__internal__.EagerTensor

__all__ = [
    "EagerTensor",
    "FuncGraph",
    "file_io",
    "list_local_devices",
    "op_def_registry",
    "polymorphic_function",
    "record",
    "script_ops",
    "tape",
]
