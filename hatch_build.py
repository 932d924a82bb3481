"""Compile the training steps of small networks into the package when it is built (``src/pcmcnet/training``).

Without a compiler the package is built all the same: those steps then go through PyTorch, several times as slow.
"""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HOME = Path("src/pcmcnet/training")
# GNU's C, and not ISO's, may join a product and a sum to one instruction. Where nobody reads errno, a root is one, too.
FLAGS = ("-O3", "-std=gnu11", "-fno-math-errno", "-fPIC", "-shared")


class CompiledSteps(BuildHookInterface):  # type: ignore[type-arg]
    """Puts the compiled file into wheels, and beside its source where the package is installed in place."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and say for which platform the wheel then is."""
        file = HOME / "libsteps.so"
        trouble = compile_steps(Path(self.root) / HOME / "compiled_steps.c", Path(self.root) / file)
        if trouble:
            self.app.display_warning(f"pcmcnet is built without compiled training steps: {trouble}")
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data.update(pure_python=False, tag=f"py3-none-{platform}")
        build_data["artifacts"].append(f"/{file.as_posix()}")


def compile_steps(source: Path, target: Path) -> str | None:
    """Compile; returns what stood in the way, if anything did."""
    target.unlink(missing_ok=True)
    unfinished = target.with_suffix(".unfinished")
    compiler = shutil.which((sysconfig.get_config_var("CC") or "cc").split()[0]) or shutil.which("cc")
    if compiler is None or sys.platform == "win32":
        return "there is no C compiler that it knows."
    made = subprocess.run(
        [compiler, *FLAGS, "-o", str(unfinished), str(source), "-lm"], capture_output=True, text=True, check=False
    )
    if made.returncode:
        return made.stderr.strip()[:2000] or "the compiler failed."
    unfinished.replace(target)
    return None
