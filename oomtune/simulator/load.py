"""Put the simulator in place of CUDA, inside the process that is about to import TensorFlow."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from oomtune.simulator.build import HOOKS, LIBRARY, SONAMES

# The simulator has no CUDA graphs, into which XLA would record its kernels.
XLA_FLAGS = "--xla_gpu_enable_command_buffer="


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedCard:
    """What TensorFlow can tell of a card."""

    name: str
    compute_capability: tuple[int, int]
    multiprocessors: int
    total_bytes: int
    context_bytes: int
    workspace_permille: int = 0


class _Description(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char * 96),
        ("compute_major", ctypes.c_int32),
        ("compute_minor", ctypes.c_int32),
        ("multiprocessors", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("total_bytes", ctypes.c_uint64),
        ("context_bytes", ctypes.c_uint64),
        ("workspace_permille", ctypes.c_uint64),
    )


class LoadedSimulator:
    """The libraries in this process. Loading them changes nothing until cards are set."""

    def __init__(self, folder: Path, *, hooks: bool) -> None:
        if hooks:
            # Global and before TensorFlow: the dynamic linker then finds the hooks before TensorFlow's own functions.
            ctypes.CDLL(str(folder / HOOKS), mode=os.RTLD_GLOBAL | os.RTLD_NOW)
        for soname in SONAMES:
            # TensorFlow opens the libraries by these names, and the loader takes what is loaded under them.
            ctypes.CDLL(str(folder / soname), mode=os.RTLD_NOW)
        self._library = ctypes.CDLL(str(folder / LIBRARY))
        self._library.oomtune_unknown_functions.restype = ctypes.c_char_p

    def set_cards(self, cards: Sequence[SimulatedCard]) -> None:
        """Choose the cards of this process. Call it before TensorFlow lists devices."""
        descriptions = (_Description * len(cards))()
        for description, card in zip(descriptions, cards, strict=True):
            description.name = card.name.encode()
            description.compute_major, description.compute_minor = card.compute_capability
            description.multiprocessors = card.multiprocessors
            description.total_bytes = card.total_bytes
            description.context_bytes = card.context_bytes
            description.workspace_permille = card.workspace_permille
        if self._library.oomtune_set_cards(descriptions, len(cards)) != 0:
            raise ValueError(f"at most 16 simulated cards; got {len(cards)}")

    def unknown_functions(self) -> list[str]:
        """Return the CUDA functions that were called although the simulator does not have them."""
        names: bytes = self._library.oomtune_unknown_functions()
        return names.decode().split()
