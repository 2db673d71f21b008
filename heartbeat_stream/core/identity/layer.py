"""The names of the layers, and why one has nothing to say about a message."""

from enum import StrEnum
from typing import Final


class Layer(StrEnum):
    """In the order in which they are asked. The values are used in headers, metrics and TOML."""

    MESSAGE_ID = "message-id"
    BUSINESS_KEY = "business-key"
    FINGERPRINT = "fingerprint"


#: Identities of different layers never meet: by this a key begins.
MARKS: Final = {Layer.MESSAGE_ID: b"i", Layer.BUSINESS_KEY: b"b", Layer.FINGERPRINT: b"f"}
#: By this the key of a sequence's state begins, which goes on as those of its ids do.
STATE_MARK: Final = b"s"


class Abstention(StrEnum):
    """Why a layer abstains: it neither looks the message up, nor is the message recorded in it."""

    MISSING = "missing"
    """A field that the identity is made of is missing or null."""
    INVALID = "invalid"
    """A field holds a value that the configuration declares to be none (0, say)."""
