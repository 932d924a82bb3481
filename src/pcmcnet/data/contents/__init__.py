"""Contents, that is, what one value is not enough for: vectors, instants, lists, texts, pictures, ids.

What all kinds have in common is here: reading with errors that name the row, learning from parts, the form of codes in
JSON, frozen encoders. What differs is in :mod:`pcmcnet.data.kinds`, one module per kind.
"""

from pcmcnet.data.contents.content_codes import (
    FrozenCode,
    code_from_dict,
    code_to_dict,
    learn_codes,
    modules_of,
    prepare,
)
from pcmcnet.data.contents.reading import read_contents

__all__ = [
    "FrozenCode",
    "code_from_dict",
    "code_to_dict",
    "learn_codes",
    "modules_of",
    "prepare",
    "read_contents",
]
