"""oomtune finds the largest configuration of a TensorFlow model that trains without running out of memory.

Importing it imports neither TensorFlow nor Keras; each name below is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from oomtune.commands.check import check
    from oomtune.commands.probe import probe
    from oomtune.diagnosis import Diagnosis, classify
    from oomtune.domain import CheckResult, ProbeResult
    from oomtune.errors import OomtuneError
    from oomtune.keras.own_loop import step
    from oomtune.storage.tuned import TunedConfig, load_tuned

__all__ = [
    "CheckResult",
    "Diagnosis",
    "OomtuneError",
    "ProbeResult",
    "TunedConfig",
    "__version__",
    "check",
    "classify",
    "load_tuned",
    "probe",
    "step",
]

_HOMES = {
    "CheckResult": "oomtune.domain",
    "Diagnosis": "oomtune.diagnosis",
    "OomtuneError": "oomtune.errors",
    "ProbeResult": "oomtune.domain",
    "TunedConfig": "oomtune.storage.tuned",
    "check": "oomtune.commands.check",
    "classify": "oomtune.diagnosis",
    "load_tuned": "oomtune.storage.tuned",
    "probe": "oomtune.commands.probe",
    "step": "oomtune.keras.own_loop",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'oomtune' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
