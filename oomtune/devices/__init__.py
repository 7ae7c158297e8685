"""The hardware of this machine, the catalogue of cards, and the budget that a probe gets from them."""

from oomtune.devices.gpus import Gpu, Machine, ask_tensorflow
from oomtune.devices.resolve import Resolved, resolve

__all__ = ["Gpu", "Machine", "Resolved", "ask_tensorflow", "resolve"]
