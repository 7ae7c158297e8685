"""Train one candidate: `Model.fit`, the user's own loop, or a whole script."""
