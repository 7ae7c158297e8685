"""Trains one candidate: with `Model.fit`, with the user's own training step, or by running a whole script."""
