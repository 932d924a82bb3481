"""Compile the training steps of small networks and the growth of trees when the package is built.

Without a C compiler the package is built without them. PyTorch and numpy then do this work, several times slower.
"""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = Path("src/pcmcnet")
LIBRARIES = {"training/compiled_steps.c": "training/libsteps.so", "models/tree_growth.c": "models/libtrees.so"}
# gnu11: unlike ISO C, GNU C may fuse a product and a sum into one instruction.
# -fno-math-errno: without errno, a square root is one instruction.
FLAGS = ("-O3", "-std=gnu11", "-fno-math-errno", "-fPIC", "-shared")


class CompiledLibraries(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the compiled libraries to wheels, and puts them next to their sources in editable installs."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the libraries, and tag the wheel with the platform."""
        compiled = []
        for source, target in LIBRARIES.items():
            error = compile_library(Path(self.root) / PACKAGE / source, Path(self.root) / PACKAGE / target)
            if error:
                self.app.display_warning(f"pcmcnet is built without {target}, so fits are slower: {error}")
            else:
                compiled.append(f"/{(PACKAGE / target).as_posix()}")
        if not compiled:
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data.update(pure_python=False, tag=f"py3-none-{platform}")
        build_data["artifacts"] += compiled


def compile_library(source: Path, target: Path) -> str | None:
    """Compile a library; return an error message, or None on success."""
    target.unlink(missing_ok=True)
    unfinished = target.with_suffix(".unfinished")
    compiler = shutil.which((sysconfig.get_config_var("CC") or "cc").split()[0]) or shutil.which("cc")
    if compiler is None or sys.platform == "win32":
        return "no supported C compiler was found."
    result = subprocess.run(
        [compiler, *FLAGS, "-o", str(unfinished), str(source), "-lm"], capture_output=True, text=True, check=False
    )
    if result.returncode:
        return result.stderr.strip()[:2000] or "the compiler failed."
    unfinished.replace(target)
    return None
