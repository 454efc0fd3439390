"""Which labels are wrong? Suggestions with reasons, over arrays and over a model with its data."""
