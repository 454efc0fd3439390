"""Which training samples, concept labels and concepts made the model say what it says (docs/influence.md)."""

from __future__ import annotations
