"""Shapes of selectors: those that only differ in literals are parsed once."""
