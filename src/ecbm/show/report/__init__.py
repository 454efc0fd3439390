"""``ecbm report``: one version of a model for readers who did not make it, as a page and as JSON."""
