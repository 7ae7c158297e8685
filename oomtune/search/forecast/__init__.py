"""Estimate how long a probe will still take."""

from oomtune.search.forecast.remaining import time_ahead_s

__all__ = ["time_ahead_s"]
