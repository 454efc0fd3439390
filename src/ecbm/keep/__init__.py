"""Keep: models on disk, and workspaces: datasets, versions of models, and who changed what, when and why."""
