"""Run trials in worker processes, and decide from how each one ended what it means."""
