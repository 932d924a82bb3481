"""Make the pictures of terminal and notebook in docs/pictures: ``python -m tools.screenshots [terminal] [notebook]``.

A comparison of models runs in a real terminal (``tools/terminal.py``). Its progress bar half way and its final output
become one SVG. A kernel runs the notebook, and Chromium takes a screenshot of its outputs.
"""

from __future__ import annotations

import html
import io
import logging
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from tools.terminal import Screen, run_in_terminal

log = logging.getLogger(__name__)
ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "pictures"
COLUMNS = 100
_BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_MAIN = "from pcmcnet.cli import main; main()"
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)  # browsers would load them from another host

READ = """from pcmcnet.datasets import intercity
import pcmcnet as pn

data = intercity.read()
data"""
CELLS = [
    READ,
    "model = pn.PCMCNet(epochs=10, weight_decay=4.0).fit(data)",
    "models = {'uniform': pn.Uniform(), 'logit': pn.MNL()}\npn.compare(models, data, folds=3)",
    "explanation = pn.explain(model, data, sets=40, skip=['axioms'], progress=False)\nexplanation.plot.importance()",
]
STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 16px; width: 900px }
.cell { display: flex; gap: 10px; margin: 10px 0 } .cell > b { color: #3b6ea8; width: 44px; font-family: monospace }
pre { background: #f5f6f8; border: 1px solid #dfe2e6; padding: 8px; margin: 0 0 6px; font-size: 13px }
.cell > div { flex: 1 }
"""


def terminal() -> Path:
    """Draw a comparison of models in a terminal."""
    from rich.console import Console
    from rich.text import Text

    words = "compare trips.parquet --schema trips.toml --models uniform,mnl,pcmcnet --folds 3 --set pcmcnet.epochs=8"
    environment = {"PYTHONPATH": str(ROOT / "src")}
    bars: list[list[str]] = []

    def watch(screen: Screen) -> None:
        bar_rows = [k for k, row in enumerate(screen.rows) if "━" in row]
        if bar_rows and bar_rows[-1] + 1 < len(screen.rows) and "pcmcnet" in screen.rows[bar_rows[-1] + 1]:
            bars.append(screen.rows[bar_rows[-1] : bar_rows[-1] + 2])

    with tempfile.TemporaryDirectory() as folder:
        place = {"environment": environment, "folder": Path(folder)}
        make = "datasets intercity -o trips.parquet --schema trips.toml"
        run_in_terminal([sys.executable, "-c", _MAIN, *make.split()], COLUMNS, **place)  # type: ignore[arg-type]
        command = [sys.executable, "-c", _MAIN, *words.split(), "-o", "out"]
        screen = run_in_terminal(command, COLUMNS, watch=watch, **place)  # type: ignore[arg-type]
    rows = [row.rstrip() for row in screen.rows if not row.startswith("weight decay")]
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ pcmcnet {words} -o out", style="bold"))
    for row in rows[:2]:
        console.print(Text(row))
    for row in bars[len(bars) // 2]:
        console.print(Text(row.rstrip(), style="green" if "━" in row else "dim"))
    console.print(Text("..."))
    for row in rows[2:]:
        console.print(Text(row, style="bold" if " is best: " in row else ""))
    target = FOLDER / "terminal.svg"
    target.write_text(_FONTS.sub("", console.export_svg(title="pcmcnet compare")), "utf-8")
    return target


def notebook() -> Path:
    """Run a notebook and draw it."""
    import nbclient
    import nbformat
    from playwright.sync_api import sync_playwright

    os.environ |= {"PYTHONPATH": str(ROOT / "src"), "MPLBACKEND": ""}
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    nbclient.NotebookClient(book, timeout=600, kernel_name="python3").execute()
    parts = []
    for k, cell in enumerate(book.cells, start=1):
        shown = "".join(_output(output) for output in cell.outputs)
        parts.append(f'<div class="cell"><b>[{k}]</b><div><pre>{html.escape(cell.source)}</pre>{shown}</div></div>')
    chromium = os.environ.get("PCMCNET_CHROMIUM") or next(filter(None, map(shutil.which, _BROWSERS)), None)
    target = FOLDER / "notebook.png"
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 940, "height": 800})
        page.set_content(f"<meta charset=utf-8><style>{STYLE}</style>{''.join(parts)}")
        page.screenshot(path=target, full_page=True)
        browser.close()
    return target


def _output(output: dict[str, object]) -> str:
    """Return an output of a notebook as HTML: its HTML or its picture, without log lines."""
    data = output.get("data")
    if not isinstance(data, dict):
        return ""
    if "image/png" in data:
        return f'<img src="data:image/png;base64,{data["image/png"]}">'
    return str(data.get("text/html", ""))


def main() -> None:
    """Make the pictures given as arguments, or all."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    FOLDER.mkdir(exist_ok=True)
    makers = {"terminal": terminal, "notebook": notebook}
    for name in sys.argv[1:] or makers:
        log.info("wrote %s", makers[name]())


if __name__ == "__main__":
    main()
