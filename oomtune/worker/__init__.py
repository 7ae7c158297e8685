"""Running one candidate from inside its process: the only folder that imports TensorFlow.

Nobody imports this package from outside; a runner starts `python -m oomtune.worker` and talks to it through a socket.
"""
