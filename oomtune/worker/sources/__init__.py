"""Every way of having data, read one sample at a time: what it holds, and the worst of it."""

from oomtune.worker.sources.made_up import random_values
from oomtune.worker.sources.opening import open_source
from oomtune.worker.sources.scan import scan
from oomtune.worker.sources.source import SIDES, Arrays, Bounds, Sample, Source, by_name, each

__all__ = ["SIDES", "Arrays", "Bounds", "Sample", "Source", "by_name", "each", "open_source", "random_values", "scan"]
