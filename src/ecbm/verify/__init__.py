"""Verify: metrics, calibration, leakage and intervention curves."""
