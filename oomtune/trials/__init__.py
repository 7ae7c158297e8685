"""Run one candidate from outside: the runners, the worker process, and what an ending means."""
