"""Types of selectors, as IBM MQ names them (SELTYPE)."""

from __future__ import annotations

from typing import Final, Literal

Seltype = Literal["NONE", "STANDARD", "EXTENDED"]

NONE: Final = "NONE"
"""The subscription has no selector."""

STANDARD: Final = "STANDARD"
"""The selector is in one of the dialects."""

EXTENDED: Final = "EXTENDED"
"""The selector is left to an extended selection provider."""
