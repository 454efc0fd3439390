"""Train: the model, its objectives, the convex heads and the gradient loop."""
