"""The command line: one file for each command, with its flags, what it draws and its exit code.

Only this package prints the answer and exits; what a command does is in `oomtune.commands`.
"""
