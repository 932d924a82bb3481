"""Compile the training steps of small networks (``src/pcmcnet/training``) when the package is built.

Without a C compiler the package is built without them. Fallback: PyTorch runs these steps, several times slower.
"""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HOME = Path("src/pcmcnet/training")
# gnu11: unlike ISO C, GNU C may fuse a product and a sum into one instruction.
# -fno-math-errno: without errno, a square root is one instruction.
FLAGS = ("-O3", "-std=gnu11", "-fno-math-errno", "-fPIC", "-shared")


class CompiledSteps(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the compiled library to wheels, and puts it next to its source in editable installs."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the steps, and tag the wheel with the platform."""
        file = HOME / "libsteps.so"
        error = compile_steps(Path(self.root) / HOME / "compiled_steps.c", Path(self.root) / file)
        if error:
            self.app.display_warning(f"pcmcnet is built without compiled training steps: {error}")
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data.update(pure_python=False, tag=f"py3-none-{platform}")
        build_data["artifacts"].append(f"/{file.as_posix()}")


def compile_steps(source: Path, target: Path) -> str | None:
    """Compile the steps; return an error message, or None on success."""
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
