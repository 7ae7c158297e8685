"""What TensorFlow sees on this machine, for the side that must not import it."""

from __future__ import annotations

import keras
import tensorflow as tf


def describe() -> dict[str, object]:
    """Versions, whether the build has CUDA, and each GPU with the memory TensorFlow would take."""
    build = tf.sysconfig.get_build_info()
    cards = tf.config.list_physical_devices("GPU")
    limits = _memory_limits() if cards else []
    return {
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "cuda_build": bool(build.get("is_cuda_build") or build.get("is_rocm_build")),
        "cuda_version": build.get("cuda_version"),
        "gpus": [_card(card, limit) for card, limit in zip(cards, limits, strict=True)],
    }


def _card(card: tf.config.PhysicalDevice, limit_bytes: int) -> dict[str, object]:
    details = tf.config.experimental.get_device_details(card)
    return {"name": details.get("device_name") or card.name, "memory_limit_bytes": limit_bytes}


def _memory_limits() -> list[int]:
    from tensorflow.python.client import device_lib

    return [entry.memory_limit for entry in device_lib.list_local_devices() if entry.device_type == "GPU"]
