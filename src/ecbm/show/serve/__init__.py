"""The workbench: a local web page on which a model is looked at, corrected, and taken back."""
