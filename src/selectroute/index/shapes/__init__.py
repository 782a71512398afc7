"""Selectors that differ in literals only are read once."""
