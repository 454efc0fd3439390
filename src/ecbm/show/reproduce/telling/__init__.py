"""One file an experiment: its table, its figures, and sentences that follow from the numbers."""
