"""This machine's hardware, the catalogue of cards, and the memory budget of a probe."""

from oomtune.devices.gpus import Gpu, Machine, ask_tensorflow
from oomtune.devices.resolve import Resolved, resolve

__all__ = ["Gpu", "Machine", "Resolved", "ask_tensorflow", "resolve"]
