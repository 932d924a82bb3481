"""Column kinds, one per module: how values are read, coded, encoded, described and sent in requests.

Each module registers its kind when it is imported, and this package imports all of them. A new kind needs only a new
file with a subclass of :class:`Kind`: see :mod:`pcmcnet.data.kinds.kind`. Other code looks up kinds in ``KINDS``.
"""

from importlib import import_module
from pkgutil import iter_modules

from pcmcnet.data.kinds.kind import KINDS, ContentCode, Kind, register

__all__ = ["KINDS", "ContentCode", "Kind", "register"]

_FIRST = ("vector", "datetime", "multi", "text", "image", "id")  # the order in messages; other kinds follow
_SHARED = {"kind", "contents", "frozen", "networks"}  # not kinds; the last two import PyTorch
for _module in dict.fromkeys((*_FIRST, *sorted({info.name for info in iter_modules(__path__)} - _SHARED))):
    import_module(f"{__name__}.{_module}")
