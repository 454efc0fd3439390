"""The package version, read by the build and written into saved models."""

__version__ = "0.1.0"
