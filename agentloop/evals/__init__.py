"""Evals: cases that are run offline, graders that look at their runs, a gate that keeps them so."""
