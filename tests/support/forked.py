"""Run programs in separate processes without the two seconds that loading PyTorch takes.

A server that has loaded PyTorch, but nothing of this library, forks a child for each program. It is started for the
first one and ends with the test process.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any
from unittest import mock

LOADED = ["torch", "scipy.optimize", "pyarrow.parquet", "narwhals"]
COMMAND = "from pcmcnet.cli import main; main()"


def script(path: Path) -> str:
    """Return code that runs the program in a file."""
    return f"import runpy; runpy.run_path({str(path)!r}, run_name='__main__')"


def run(
    code: str, *words: object, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program until it ends."""
    arguments = [str(word) for word in words]
    if sys.platform == "win32":  # fork is not available
        command = [sys.executable, "-c", code, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=env, cwd=cwd)
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        status = Forked(code, arguments, stdout=out, stderr=err, env=env, cwd=cwd).wait()
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess(arguments, status, out.read(), err.read())


class Forked:
    """A running program, with the method names of ``subprocess.Popen``."""

    def __init__(
        self,
        code: str,
        words: Sequence[str] = (),
        *,
        stdout: IO[Any] | int,
        stderr: IO[Any] | int,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        from multiprocessing import forkserver, get_context
        from multiprocessing.connection import Connection

        context = get_context("forkserver")
        context.set_forkserver_preload(LOADED)
        with mock.patch.dict(os.environ, OMP_NUM_THREADS="1"):
            forkserver.ensure_running()
        streams = [Connection(os.dup(each if isinstance(each, int) else each.fileno())) for each in (stdout, stderr)]
        request = code, list(words), dict(os.environ if env is None else env), cwd or Path.cwd(), streams
        self.process = context.Process(target=_become, args=request)
        self.process.start()
        for stream in streams:
            stream.close()

    def poll(self) -> int | None:
        """Return the exit status if the program has ended; a signal gives a negative one."""
        return self.process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self.process.join(timeout)
        assert self.process.exitcode is not None, "it is still under way"
        return self.process.exitcode

    def send_signal(self, number: int) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)


def _become(code: str, words: list[str], env: dict[str, str], folder: Path, streams: list[Any]) -> None:
    """Run a program in a child of the server."""
    for number, stream in enumerate(streams, 1):
        os.dup2(stream.fileno(), number)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", 1, "utf-8", closefd=False) for number in (1, 2))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a shell
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    sys.argv = ["-c", *words]
    exec(compile(code, "<program>", "exec"), {"__name__": "__main__"})
