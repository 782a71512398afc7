"""Where each field stands in a `Descriptor`, and in a message as a queue in memory stores it."""

from __future__ import annotations

from typing import Final

MSG_ID: Final = 0
CORREL_ID: Final = 1
GROUP_ID: Final = 2
MSG_SEQ_NUMBER: Final = 3
OFFSET: Final = 4
LAST_IN_GROUP: Final = 5
PRIORITY: Final = 6
PERSISTENCE: Final = 7
EXPIRY: Final = 8
TIMESTAMP: Final = 9
BACKOUT_COUNT: Final = 10
EXPIRATION: Final = 11
