"""What one value is not enough for: vectors, instants, lists, texts, pictures. One module a kind, each in three steps.

    raw column  --read-->  distinct contents  --learn-->  code  --prepare-->  (U, ...) numbers for a network

Reading checks every content and numbers equal ones alike; it knows nothing of models. A code is what a model keeps of
its training part (a scale, a vocabulary); it survives JSON, and turns any later table's contents into numbers. What
maps these numbers to vectors is the matter of :mod:`pcmcnet.layers.representation.content_encoders`.
"""

from pcmcnet.data.contents.codes import (
    CODES,
    ContentCode,
    FrozenCode,
    code_from_dict,
    code_to_dict,
    learn_codes,
    prepare,
)
from pcmcnet.data.contents.frozen import Frozen
from pcmcnet.data.contents.reading import read_contents

__all__ = [
    "CODES",
    "ContentCode",
    "Frozen",
    "FrozenCode",
    "code_from_dict",
    "code_to_dict",
    "learn_codes",
    "prepare",
    "read_contents",
]
