"""Bytes in memory of Arrow's own, where its threads may read them."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["arrow_stream"]


def arrow_stream(content: bytes) -> pa.BufferReader:
    """A copy of ``content`` as a source for Arrow's readers.

    Arrow's threads go on for a moment after a reader has returned, and let go of what they read from then. Were
    that an object of Python's, a thread would need the interpreter for it; if the interpreter is ending just then
    (a refused table, one line on standard error), it would be the whole process that ends, by SIGABRT.
    """
    memory = pa.BufferOutputStream()
    memory.write(content)
    return pa.BufferReader(memory.getvalue())
