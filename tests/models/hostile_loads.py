"""Load altered copies of the golden folders, many in one process.

    python hostile_loads.py FIRST LAST          random alterations
    python hostile_loads.py count VALUE FILE    each count in config.json, or in the record of model.json, set to VALUE

Each number is the seed of one alteration: entries of a JSON file, numbers of an array, a part of the forest's archive,
or plain bytes. Hashes are updated, as an attacker would do. A load must end in an error of pcmcnet, or in a model whose
probabilities are finite and sum to one. Any other outcome is written to standard output. A crash or an endless load
ends the process: see test_hostile_folders.py. With ``count``, a load must end within a number of calls.
"""

import copy
import faulthandler
import hashlib
import io
import itertools
import json
import random
import resource
import shutil
import sys
import tempfile
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from pcmcnet.data.files.tabular import read_table
from pcmcnet.errors import PcmcNetError
from pcmcnet.models import load

GOLDEN = Path(__file__).parent / "golden"
NAMES = sorted(path.name for path in (GOLDEN / "format-2").iterdir() if path.is_dir())
NAMES += ["rf"] * len(NAMES)  # every second folder is a forest, which compiled code reads
PATIENCE = 60  # seconds for one load
ROOM = 4 << 30  # bytes of memory in addition to those used at the start
HOSTILE: list[Any] = [None, True, False, -1, 0, 1, 2, 7, 10**9, 2**63, -(2**31), 10**400, 0.5, -0.0, 1e308, -1e308]
HOSTILE += [5e-324, float("nan"), float("inf"), "", "x", "price", "mode", "0", "frozen"]
HOSTILE += [[], {}, [[]], ["x"], [1.0], [None], {"x": 1}]
EXTREMES = [0, 1, -1, -2, 2, 3, 99, 2**31, 2**62, -(2**63)]
NUMBERS = [0.0, -1.0, 1e-300, 1e38, 3e38, -3e38, 1e300, float("nan"), float("inf"), -float("inf")]

MAX_CALLS = 10**6  # of Python functions in one load; loads of the golden folders take at most a tenth

Alter = Callable[[bytes, random.Random], bytes]


def places(value: Any, owner: Any = None, key: Any = None) -> list[tuple[Any, Any]]:
    """Return all entries of a JSON value, each as its container and its key or index."""
    entries = [] if owner is None else [(owner, key)]
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for k, part in list(inner):
        entries += places(part, value, k)
    return entries


def alter_json(content: bytes, rng: random.Random, only: str = "") -> bytes:
    value = json.loads(content)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        result = [(o, k) for o, k in places(value) if not only or str(k) in only.split()] or places(value)
        if not result:
            return json.dumps(rng.choice(HOSTILE)).encode()
        owner, key = rng.choice(result)
        entry, (other, at) = owner[key], rng.choice(result)
        way = rng.randrange(6)
        if way == 0:
            del owner[key]
        elif way == 1:
            owner[key] = copy.deepcopy(other[at])
        elif way == 2 and isinstance(entry, list) and entry:
            owner[key] = rng.choice([entry * 2, entry[1:], entry[::-1], entry[:1]])
        elif way == 2 and isinstance(entry, int | float) and abs(entry) < 1e300:
            owner[key] = rng.choice([str(entry), entry + 1, -entry, entry * 1e6, [entry]])
        elif way == 3 and isinstance(owner, dict):
            owner[rng.choice(["x", "kind", "name", "indicator", "pooled", "price", "mean"])] = owner.pop(key)
        else:
            owner[key] = copy.deepcopy(rng.choice(HOSTILE))
    return json.dumps(value).encode()


def alter_array(array: np.ndarray[Any, Any], rng: random.Random) -> np.ndarray[Any, Any]:
    array = array.copy()
    way = rng.randrange(5)
    if way == 0 and array.ndim:
        return rng.choice([array[:-1], array[None], array.reshape(-1), array[::-1], np.concatenate([array, array])])
    if way == 1 and array.dtype.names is None:
        return array.astype(rng.choice(["f4", "f8", "i8", "i4", "u1", "?", "f2"]))
    if not array.size:
        return array
    part = array[rng.choice(array.dtype.names)] if array.dtype.names else array
    with np.errstate(all="ignore"):
        value = np.array(rng.choice(NUMBERS if part.dtype.kind == "f" else EXTREMES)).astype(part.dtype)
    part.reshape(-1)[slice(None) if way == 2 else rng.randrange(part.size)] = value
    return array


def alter_tensors(content: bytes, rng: random.Random) -> bytes:
    arrays = load_arrays(content)
    name = rng.choice(sorted(arrays))
    way = rng.randrange(8)
    if way == 0:
        del arrays[name]
    elif way == 1:
        arrays[rng.choice([*arrays, "x"])] = arrays.pop(name)
    else:
        arrays[name] = alter_array(arrays[name], rng)
    return save_arrays({k: np.ascontiguousarray(v) for k, v in arrays.items()})


def alter_forest(content: bytes, rng: random.Random) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice([*parts, *["schema.json"] * 5])
    if name == "schema.json":
        only = rng.choice(["", "tree_ args nodes values max_depth node_count file", "content n_classes_ estimators_"])
        parts[name] = alter_json(parts[name], rng, only)
    else:
        file = io.BytesIO()
        np.save(file, alter_array(np.load(io.BytesIO(parts[name])), rng))
        parts[name] = alter_bytes(file.getvalue(), rng) if rng.random() < 0.2 else file.getvalue()
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        for part, inside in parts.items():
            archive.writestr(part, inside)
    return whole.getvalue()


def alter_bytes(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice([1, 3, 20])):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed[: rng.randrange(len(changed))] if rng.random() < 0.2 else changed)


ALTER: dict[str, Alter] = {".json": alter_json, ".safetensors": alter_tensors, ".skops": alter_forest}


def write(folder: Path, name: str, content: bytes) -> None:
    """Replace a file and update the hashes."""
    (folder / name).write_bytes(content)
    manifest = json.loads((folder / "model.json").read_bytes())
    if name != "model.json":
        manifest["files"][name] = hashlib.sha256(content).hexdigest()
        manifest.get("sizes", {})[name] = len(content)
    manifest.pop("sha256", None)
    manifest["sha256"] = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    (folder / "model.json").write_text(json.dumps(manifest))


def alter(folder: Path, rng: random.Random) -> str:
    """Alter one file of a folder and return its name."""
    names = sorted(p.name for p in folder.iterdir() if p.suffix != ".md" and not p.name.endswith("history.json"))
    name = rng.choice([*names, *(["forest.skops"] * len(names) if "forest.skops" in names else [])])
    content = (folder / name).read_bytes()
    how = alter_bytes if rng.random() < 0.1 and name != "model.json" else ALTER[Path(name).suffix]
    write(folder, name, how(content, rng))
    return name


def use(folder: Path, table: Any) -> None:
    """Load the model and call all methods that a user would."""
    with np.errstate(all="ignore"):
        model = load(folder)
        p = model.predict_proba(table)
        _, sets = np.unique(table[model.schema.choice_set].to_numpy(zero_copy_only=False), return_inverse=True)
        assert np.isfinite(p).all(), "probabilities that are not finite"
        assert np.allclose(np.bincount(sets, p), 1, atol=1e-4), "probabilities that do not sum to one"
        _ = model.predict(table), model.num_parameters, str(model.summary()), model.caveats


def report(text: str) -> None:
    """Write without a buffer, so that the seed of a crash is printed."""
    sys.stdout.write(text)
    sys.stdout.flush()


class TooManyCallsError(BaseException):
    """A load takes too long. The class is not a subclass of Exception, so the library does not catch it."""


@contextmanager
def limited_calls() -> Iterator[None]:
    """Raise TooManyCallsError if the block calls more functions than MAX_CALLS."""
    calls = itertools.count(1)

    def count_calls(frame: object, event: str, arg: object) -> None:
        if next(calls) > MAX_CALLS:
            sys.setprofile(None)
            raise TooManyCallsError

    sys.setprofile(count_calls)
    try:
        yield
    finally:
        sys.setprofile(None)


def limit_memory() -> None:
    """Limit the memory of this process to what it uses now, and ROOM."""
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if sys.platform == "linux" else 0
    if pages:
        room = pages * resource.getpagesize() + ROOM
        resource.setrlimit(resource.RLIMIT_AS, (room, room))


def is_right(action: Callable[[], None]) -> bool:
    """Return True if a load ends in a sound model or in an error of the library, and report which."""
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    try:
        action()
        report("sound\n")
    except PcmcNetError as error:
        report(f"refused: {error}\n")
    except BaseException as error:  # noqa: BLE001 - any other error is a failure
        where = traceback.extract_tb(error.__traceback__)[-1]
        report(f"WRONG: {type(error).__name__}: {error} ({where.filename}:{where.lineno})\n")
        return False
    return True


def try_seeds(first: int, last: int) -> list[bool]:
    """Try the random alterations with the seeds from first up to last."""
    table = read_table(GOLDEN / "table.csv")
    limit_memory()
    right = []
    with tempfile.TemporaryDirectory() as place:
        for seed in range(first, last):
            rng, folder = random.Random(seed), Path(place) / str(seed)
            kind = NAMES[seed % len(NAMES)]
            shutil.copytree(GOLDEN / "format-2" / kind, folder)
            report(f"seed {seed}: {kind} ")
            report(f"{alter(folder, rng)} ")
            right.append(is_right(partial(use, folder, table)))
            shutil.rmtree(folder)
    return right


def counts(value: Any) -> list[tuple[Any, Any]]:
    """Return the places of whole numbers, and of "auto" and null, which may stand for one."""
    return [(o, k) for o, k in places(value) if type(o[k]) is int or o[k] in ("auto", None)]


def try_counts(value: int, name: str) -> list[bool]:
    """Set each count of the options, or of the record in model.json, to a value, one at a time."""
    right = []
    for kind in sorted(set(NAMES)):
        load(GOLDEN / "format-2" / kind)  # imports what the model needs
    limit_memory()
    with tempfile.TemporaryDirectory() as place:
        for kind in sorted(set(NAMES)):
            original = json.loads((GOLDEN / "format-2" / kind / name).read_bytes())
            for number in range(len(counts(_with_counts(original)))):
                content, folder = copy.deepcopy(original), Path(place) / "folder"
                owner, key = counts(_with_counts(content))[number]
                owner[key] = value
                shutil.copytree(GOLDEN / "format-2" / kind, folder)
                write(folder, name, json.dumps(content).encode())
                report(f"count: {kind} {name} {key} ")
                with limited_calls():
                    right.append(is_right(lambda: str(load(folder))))  # noqa: B023 - called at once
                shutil.rmtree(folder)
    return right


def _with_counts(content: dict[str, Any]) -> Any:
    """Return the part of a JSON file that may contain counts: the record of the manifest, or all options."""
    return content["fit"]["record"] if "fit" in content else content


def main(words: list[str]) -> int:
    """Try alterations, report the number of failures, and return the exit status."""
    warnings.simplefilter("ignore")
    right = try_counts(int(words[1]), words[2]) if words[0] == "count" else try_seeds(*map(int, words))
    faulthandler.cancel_dump_traceback_later()
    report(f"{len(right)} loads, {right.count(False)} of them wrong\n")
    return int(not all(right))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
