"""Watch a trial: peaks, leaks, retraces and what memory holds."""
