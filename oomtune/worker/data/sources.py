"""Every way of having data, read one sample at a time: what it holds, and the worst of it."""

from oomtune.worker.data.open_source import open_source
from oomtune.worker.data.scan import scan
from oomtune.worker.data.source import SIDES, Arrays, Bounds, Sample, Source, by_name, each
from oomtune.worker.data.synthetic import random_values

__all__ = ["SIDES", "Arrays", "Bounds", "Sample", "Source", "by_name", "each", "open_source", "random_values", "scan"]
