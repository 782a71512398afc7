"""Why a selector does or does not hold for a message, in sentences."""
