"""The convex heads: objectives, solvers, and what makes the solvers fast."""
