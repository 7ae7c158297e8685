"""Build the model for a candidate."""
