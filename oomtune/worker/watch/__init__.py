"""Observes a running trial: step times, peaks, what memory holds at the peak, what grows, what is traced again."""
