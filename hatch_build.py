"""Compile the training steps of small networks and the growth of trees when the package is built.

Without a C compiler, the package is built without them. PyTorch and numpy then do this work, several times slower. If
PCMCNET_REQUIRE_COMPILED is set, such a build fails instead: wheels for distribution are built with this variable.

The commands are those of GCC and Clang. On Windows, Clang is preferred to MSVC (``cl``), which needs a developer
prompt. Libraries have the ending .so on every platform, because ctypes loads them by path.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

PACKAGE = Path("src/pcmcnet")
LIBRARIES = {
    "training/compiled_steps.c": "training/libsteps.so",
    "models/tree_growth.c": "models/libtrees.so",
    "models/logit/hierarchical_steps.c": "models/logit/libhierarchical.so",
}
# gnu11: unlike ISO C, GNU C may fuse a product and a sum into one instruction.
# -fno-math-errno: without errno, a square root is one instruction.
# -Wno-psabi: functions with vectors as arguments are inlined.
FLAGS = ("-O3", "-std=gnu11", "-fno-math-errno", "-Wno-psabi", "-shared")
MSVC_FLAGS = ("/nologo", "/O2", "/std:c11", "/LD")
WINDOWS_COMPILERS = ("clang", r"C:\Program Files\LLVM\bin\clang.exe", "cl", "gcc")


class CompiledLibraries(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the compiled libraries to wheels, and puts them next to their sources in editable installs."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the libraries, and tag the wheel with the platform."""
        compiled = []
        for source, target in LIBRARIES.items():
            error = compile_library(Path(self.root) / PACKAGE / source, Path(self.root) / PACKAGE / target)
            if not error:
                compiled.append(f"/{(PACKAGE / target).as_posix()}")
                continue
            message = f"pcmcnet is built without {target}, so fits are several times slower: {error}"
            if os.environ.get("PCMCNET_REQUIRE_COMPILED"):
                raise RuntimeError(message)
            self.app.display_warning(message)
        if not compiled:
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data.update(pure_python=False, tag=f"py3-none-{platform}")
        build_data["artifacts"] += compiled


class AbsoluteLinks(MetadataHookInterface):
    """Makes the relative links of README.md absolute, so that they work on PyPI."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the README to the metadata."""
        text = (Path(self.root) / "README.md").read_text("utf-8")
        repository = metadata["urls"]["Repository"]
        metadata["readme"] = {"content-type": "text/markdown", "text": with_absolute_links(text, repository)}


def with_absolute_links(text: str, repository: str) -> str:
    """Return a page with absolute links to files of the repository; images are linked to their content."""
    text = re.sub(r"(!\[[^]]*\]\()(?!https?:|#)", rf"\g<1>{repository}/raw/main/", text)
    return re.sub(r"((?<!!)\[[^]]*\]\()(?!https?:|#)", rf"\g<1>{repository}/blob/main/", text)


def compile_library(source: Path, target: Path) -> str | None:
    """Compile a library; return an error message, or None on success."""
    target.unlink(missing_ok=True)
    compiler = find_compiler()
    if compiler is None:
        return "no C compiler was found."
    with TemporaryDirectory() as folder:  # MSVC writes further files
        library = Path(folder) / target.name
        command = compile_command(compiler, source, library)
        result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        if result.returncode:
            return (result.stderr + result.stdout).strip()[:2000] or "the compiler failed."
        # Renamed in the target's folder: a process that has loaded the old file keeps it.
        unfinished = target.with_suffix(".unfinished")
        shutil.copyfile(library, unfinished)
        unfinished.replace(target)
    return None


def find_compiler() -> list[str] | None:
    """Return the command of the C compiler, or None if there is none."""
    named = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "", posix=sys.platform != "win32")
    others = WINDOWS_COMPILERS if sys.platform == "win32" else ("cc", "gcc", "clang")
    # Options after the first word of Python's own compiler are those of its extensions; a CC of the user is kept whole.
    first = named if os.environ.get("CC") else named[:1]
    for command in (first, *([name] for name in others)):
        if command and (found := shutil.which(command[0])):
            return [found, *command[1:]]
    return None


def compile_command(compiler: list[str], source: Path, library: Path) -> list[str]:
    """Return the command that compiles and links a library."""
    if Path(compiler[0]).stem.lower() in ("cl", "clang-cl"):
        return [*compiler, *MSVC_FLAGS, str(source), f"/Fe:{library}"]
    options: list[str] = []
    if sys.platform == "darwin":
        # cibuildwheel sets ARCHFLAGS. A wheel with the tag universal2 needs both architectures.
        both = "-arch arm64 -arch x86_64" if "universal2" in sysconfig.get_platform() else ""
        options += shlex.split(os.environ.get("ARCHFLAGS") or both)
        options.append(f"-mmacosx-version-min={sysconfig.get_platform().split('-')[1]}")
    if sys.platform == "win32":
        return [*compiler, *FLAGS, "-o", str(library), str(source)]
    return [*compiler, *FLAGS, "-fPIC", *options, "-o", str(library), str(source), "-lm"]
