"""One pure model of a finished probe; one file for each way to show it."""
