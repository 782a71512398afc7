"""Typed values of JMS, numbers, and the truth values of three-valued logic."""
