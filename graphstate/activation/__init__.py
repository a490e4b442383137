"""Activation: how much of a memory is present now. Values and formulas, without clock and store."""
