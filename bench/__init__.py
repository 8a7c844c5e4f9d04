"""Measurements: how fast headway is beside its neighbours."""
