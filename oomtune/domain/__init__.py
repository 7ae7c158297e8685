"""The words of the project as types. Frozen, keyword-only, standard library only.

A *candidate* is one point of the search; a *lane* is a candidate without its batch size; a *trial* runs a candidate
in a process of its own; an *outcome* says how that ended; a *record* is a trial with its outcome, as the ledger
keeps it.
"""

from oomtune.domain.data import DatasetSpec, NpzData, Scan, SyntheticData, Tensors, TensorSpec
from oomtune.domain.result import Fit, FrontierPoint, ProbeResult, Verdict
from oomtune.domain.search import Budget, Candidate, Kind, Lane, Objective, Purpose, SearchSpace, Stage, is_half
from oomtune.domain.spec import (
    LAYERS_INSIDE,
    Application,
    ClassConfig,
    Device,
    DeviceRequest,
    ModelSpec,
    ProbeSpec,
    TrainingSpec,
    TrialSettings,
)
from oomtune.domain.trial import Outcome, Point, RaisedError, Reply, Trial, TrialError, TrialRecord, WorkOrder

__all__ = [
    "LAYERS_INSIDE",
    "Application",
    "Budget",
    "Candidate",
    "ClassConfig",
    "DatasetSpec",
    "Device",
    "DeviceRequest",
    "Fit",
    "FrontierPoint",
    "Kind",
    "Lane",
    "ModelSpec",
    "NpzData",
    "Objective",
    "Outcome",
    "Point",
    "ProbeResult",
    "ProbeSpec",
    "Purpose",
    "RaisedError",
    "Reply",
    "Scan",
    "SearchSpace",
    "Stage",
    "SyntheticData",
    "TensorSpec",
    "Tensors",
    "TrainingSpec",
    "Trial",
    "TrialError",
    "TrialRecord",
    "TrialSettings",
    "Verdict",
    "WorkOrder",
    "is_half",
]
