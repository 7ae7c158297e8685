"""What each command does, without a terminal. The command line and the Python API both call these functions."""
