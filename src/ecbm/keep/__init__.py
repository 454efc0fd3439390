"""Keep: models on disk."""
