"""What hardware is here, and the budget it gives."""

from oomtune.devices.resolve import Resolved, resolve
from oomtune.devices.seen import Gpu, Machine, ask_tensorflow

__all__ = ["Gpu", "Machine", "Resolved", "ask_tensorflow", "resolve"]
