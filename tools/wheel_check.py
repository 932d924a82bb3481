"""Install a wheel into a new environment and run the README and the quick start: ``python -m tools.wheel_check``.

With ``--wheels FOLDER``, the wheel for this platform is taken from the folder; otherwise, it is built twice, and both
builds must have the same bytes. By default, nothing is downloaded: the new environment has the wheel and links to the
packages of this environment on which it depends. With ``--download``, pip installs them, as for a new user.

The code runs outside of the repository, as printed on the pages, and the outputs are compared with the pages.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

log = logging.getLogger(__name__)
ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/quick-start.md")
MAX_MEGABYTES = 3.0
_SOURCES = ("src", "hatch_build.py", "pyproject.toml", "README.md", "LICENSE")
_NOT_LINKED = re.compile(
    r"(__editable__|_?pcmcnet|pandas|polars|plotly|optuna|fastapi|ray|onnx|.*\.pth$)", re.IGNORECASE
)
# Run the blocks of a page with the installed package. The tools of the repository follow at the end of the path.
_RUN_PAGE = """
import sys, pathlib
import pcmcnet
root = sys.argv[2]
assert pathlib.Path(pcmcnet.__file__).resolve().is_relative_to(pathlib.Path(sys.prefix).resolve()), pcmcnet.__file__
sys.path.append(root)
from tools.tutorials import outdated
differences = outdated(pathlib.Path(sys.argv[1]))
print("\\n".join(differences))
sys.exit(bool(differences))
"""


def main() -> None:
    """Check a wheel, and exit with status 1 if the check fails."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--wheels", type=Path, help="folder with wheels; default: build one")
    parser.add_argument("--download", action="store_true", help="install the dependencies with pip")
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = build_twice(folder) if words.wheels is None else wheel_for_this_platform(words.wheels)
        size = wheel.stat().st_size / 1e6
        log.info("%s: %.2f MB (limit %.0f)", wheel.name, size, MAX_MEGABYTES)
        if size > MAX_MEGABYTES:
            sys.exit("the wheel is too large.")
        python = install(wheel, folder / "environment", download=words.download)
        for page in PAGES:
            run_page(python, ROOT / page, folder / Path(page).stem)


def build_twice(folder: Path) -> Path:
    """Build the wheel twice from copies of the sources, and require the same bytes."""
    wheels = []
    for name in ("first", "second"):
        copy = folder / name / "source"
        for source in _SOURCES:
            target = copy / source
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, target, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / source, target)
        _run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(copy.parent), str(copy)])
        wheels.append(next(copy.parent.glob("*.whl")))
    digests = {hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in wheels}
    if len(digests) > 1:
        sys.exit("two builds differ: the wheel is not reproducible.")
    log.info("two builds have the same bytes: SHA-256 %s", digests.pop())
    return wheels[0]


def wheel_for_this_platform(folder: Path) -> Path:
    """Return the wheel in a folder that pip would install here."""
    found = folder.resolve() / "chosen"
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-index", "--find-links", str(folder)]
    _run([*pip, "-d", str(found), "pcmcnet"])
    return next(found.glob("*.whl"))


def install(wheel: Path, environment: Path, *, download: bool) -> Path:
    """Create an environment, install the wheel, and return its Python."""
    venv.create(environment, with_pip=True)
    python = environment / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    _run([str(python), "-m", "pip", "install", "-q", *([] if download else ["--no-deps"]), str(wheel)])
    if not download:
        # Link the packages of this environment, apart from pcmcnet and the optional ones that a new user does not have.
        own = next(environment.glob("lib/python*/site-packages"))
        for folder in (Path(path) for path in sys.path if path.endswith("site-packages")):
            for entry in folder.iterdir():
                if not (own / entry.name).exists() and not _NOT_LINKED.match(entry.name):
                    (own / entry.name).symlink_to(entry)
    return python


def run_page(python: Path, page: Path, folder: Path) -> None:
    """Run the code of a page in an empty folder with the installed package."""
    folder.mkdir()
    done = subprocess.run(
        [str(python), "-c", _RUN_PAGE, str(page), str(ROOT)], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{page.name} does not run as printed:\n{done.stdout}\n{done.stderr[-3000:]}")
    log.info("%s runs as printed", page.name)


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
