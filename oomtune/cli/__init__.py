"""One file a command; the only place that exits or prints the answer."""
