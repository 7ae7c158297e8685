"""Keeps the user's code from changing the user's files: writes are redirected, and the kernel denies the rest."""
