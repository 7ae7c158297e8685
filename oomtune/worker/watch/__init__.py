"""Observes a running trial: step times, peaks and their parts, memory growth, and repeated tracing."""
