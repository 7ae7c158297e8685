"""What hardware is here, and the budget it gives."""

from oomtune.devices.resolve import Resolved, resolve
from oomtune.devices.tensorflow_view import Gpu, Machine, ask_tensorflow

__all__ = ["Gpu", "Machine", "Resolved", "ask_tensorflow", "resolve"]
