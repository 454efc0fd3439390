"""The paper's experiments with the controls it lacks: ``ecbm reproduce`` and what benchmarks share with it."""
