"""Types of selectors, as IBM MQ names them (SELTYPE)."""

from __future__ import annotations

from typing import Final, Literal

Seltype = Literal["NONE", "STANDARD", "EXTENDED"]

NONE: Final = "NONE"
"""No selector."""

STANDARD: Final = "STANDARD"
"""Selector in one of the dialects."""

EXTENDED: Final = "EXTENDED"
"""Selector left to an extended selection provider."""
