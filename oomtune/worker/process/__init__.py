"""The worker processes: the zygote that starts each trial, the child that runs it, and what ends them in time."""
