"""Encoders learnt from a scanned table, kept beside its shards: what takes a look at all of them is done once.

So a run that goes on, a second run, and the workers of a group begin to train without it. A file is named after the
part of the table and the way it was learnt, and goes with the shards when the table is converted anew. One that cannot
be written, or is damaged, is learnt again.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path

from pcmcnet.data.encoding import Encoder
from pcmcnet.data.scan.scanned import ScannedData
from pcmcnet.errors import ArtifactError
from pcmcnet.storage.files import parse_json, write_bytes
from pcmcnet.storage.versions import package_version


def learnt(data: ScannedData, *, bend: bool = False, labels: bool = False) -> Encoder:
    """Learn an encoder, or take the one that was learnt before; see :meth:`Encoder.learn`."""
    place = _place(data, bend=bend, labels=labels)
    encoder = _read(place)
    if encoder is None:
        with data.workers:
            encoder = Encoder.learn(data, bend=bend, labels=labels)
        text = json.dumps(encoder.to_dict())
        with suppress(ArtifactError):  # there is no room, or no right to write: whoever is next learns it again
            write_bytes(place, json.dumps({"encoder": text, "sha256": _digest(text)}).encode())
    return encoder


def _place(data: ScannedData, *, bend: bool, labels: bool) -> Path:
    way = json.dumps(
        [package_version("pcmcnet"), data.manifest.fingerprint, [repr(part) for part in data.filters], bend, labels]
    )
    return data.folder / f"encoder-{_digest(way)[:16]}.json"


def _read(place: Path) -> Encoder | None:
    try:
        found = parse_json(place.read_bytes())
        if found["sha256"] != _digest(found["encoder"]):
            return None
        return Encoder.from_dict(parse_json(found["encoder"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ArtifactError):
        return None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
