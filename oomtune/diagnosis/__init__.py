"""Reading crash logs: what failed, for want of what, and what to do about it. Pure: text in, a diagnosis out."""

from oomtune.diagnosis.reading import classify, diagnose
from oomtune.diagnosis.result import Cause, Diagnosis

__all__ = ["Cause", "Diagnosis", "classify", "diagnose"]
