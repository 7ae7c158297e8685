"""Runs one candidate inside its own process. Only this folder and `oomtune.keras` import TensorFlow.

No other folder imports it: a runner starts the zygote as a new process and talks to it through a socket.
"""
