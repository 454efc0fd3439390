"""Datasets by name: two built in, and readers for three public archives in their official layouts."""

from __future__ import annotations

from ecbm.read.birds import birds
from ecbm.read.breast_cancer import breast_cancer
from ecbm.read.celeba import celeba
from ecbm.read.cub import cub, read_cub_index
from ecbm.read.oai import oai

__all__ = ["birds", "breast_cancer", "celeba", "cub", "oai", "read_cub_index"]
