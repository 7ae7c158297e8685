"""What TensorFlow sees on this machine, for the side that must not import it."""

from __future__ import annotations

import re
from typing import Any

import keras
import tensorflow as tf

_BUS_ID = re.compile(r"pci bus id: ([0-9a-fA-F:.]+)")


def describe() -> dict[str, object]:
    """Versions, whether the build has CUDA, and each GPU with the memory TensorFlow would take."""
    build = tf.sysconfig.get_build_info()
    cards = tf.config.list_physical_devices("GPU")
    local = _local_devices() if cards else []
    return {
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "cuda_build": bool(build.get("is_cuda_build") or build.get("is_rocm_build")),
        "cuda_version": build.get("cuda_version"),
        "gpus": [_card(card, entry) for card, entry in zip(cards, local, strict=True)],
    }


def _card(card: tf.config.PhysicalDevice, entry: Any) -> dict[str, object]:
    details = tf.config.experimental.get_device_details(card)
    bus_id = _BUS_ID.search(entry.physical_device_desc)
    return {
        "name": details.get("device_name") or card.name,
        "memory_limit_bytes": entry.memory_limit,
        "bus_id": bus_id[1].lower() if bus_id else "",
    }


def _local_devices() -> list[Any]:
    """The cards again, with the memory that TensorFlow would take and where they are plugged in."""
    from oomtune.keras.private_tensorflow import list_local_devices

    return [entry for entry in list_local_devices() if entry.device_type == "GPU"]
