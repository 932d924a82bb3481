"""The options that say how many processes or machines do the work."""

from __future__ import annotations

from typing import Annotated

import typer

_PANEL = "Several processes or machines"
WORKERS = 2

Engine = Annotated[
    str,
    typer.Option(
        help="local: this process. ray: workers of the Ray that RAY_ADDRESS names, or of one on this machine.",
        rich_help_panel=_PANEL,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(help=f"Workers of --engine ray; {WORKERS} if not given.", show_default=False, rich_help_panel=_PANEL),
]


def workers_of(engine: str, workers: int | None) -> int:
    """Return the number of workers: 0 for this process."""
    from pcmcnet.checks import require_number, require_word
    from pcmcnet.errors import ConfigError

    require_word("engine", engine, ("local", "ray"))
    if engine == "local":
        if workers is not None:
            raise ConfigError("--workers is for --engine ray: one process has no workers.")
        return 0
    from pcmcnet.cluster.engine import require_ray

    require_ray()  # before any table is read
    require_number("--workers", WORKERS if workers is None else workers, whole=True, low=1)
    return workers or WORKERS
