"""One file an experiment: the pieces it is made of, the models they need, and how a piece is computed."""
