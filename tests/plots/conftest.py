"""What tests of pictures share: the size of a PNG file, read from its header."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def png_size() -> Callable[[Path], tuple[int, int]]:
    """Read width and height in pixels, refusing what is no PNG file or is cut off."""

    def size(path: Path) -> tuple[int, int]:
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG\r\n\x1a\n")
        assert content.endswith(b"IEND\xaeB`\x82")
        width, height = struct.unpack(">II", content[16:24])
        return width, height

    return size
