"""Audits: can what was erased still be seen in a model, and could the test have seen it at all?"""
