"""Editable concept bottleneck models."""
