"""Estimate how long the search will still take."""
