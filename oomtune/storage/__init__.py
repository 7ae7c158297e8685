"""What oomtune keeps on disk: ledgers, explanations, scans and tuned configs, and how files are written."""
