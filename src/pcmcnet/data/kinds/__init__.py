"""One module per kind of column: how it is read, coded, streamed, encoded, described and asked for.

Each module registers its kind when it is imported, and all modules of kinds are. So a new kind is one new file:
a subclass of :class:`Kind`, as :mod:`pcmcnet.data.kinds.kind` tells, and whoever needs to know of kinds asks ``KINDS``.
"""

from importlib import import_module
from pkgutil import iter_modules

from pcmcnet.data.kinds.kind import KINDS, ContentCode, Kind, register

__all__ = ["KINDS", "ContentCode", "Kind", "register"]

_FIRST = ("vector", "datetime", "multi", "text", "image", "id")  # as messages list them, before kinds that come later
_SHARED = {"kind", "contents", "frozen", "networks"}  # no kinds; the last two load PyTorch
for _module in dict.fromkeys((*_FIRST, *sorted({found.name for found in iter_modules(__path__)} - _SHARED))):
    import_module(f"{__name__}.{_module}")
