"""Keep the user's code from writing outside a trial's own folder."""
