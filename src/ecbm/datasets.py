"""Datasets by name: two built in, readers for three public archives in their official layouts, and one made of
embeddings.
"""

from __future__ import annotations

from ecbm.read.birds import birds
from ecbm.read.breast_cancer import breast_cancer
from ecbm.read.celeba import celeba
from ecbm.read.cub import cub, read_cub_index
from ecbm.read.label_free import label_free
from ecbm.read.oai import oai

__all__ = ["birds", "breast_cancer", "celeba", "cub", "label_free", "oai", "read_cub_index"]
