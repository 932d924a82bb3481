"""The demonstration runs from end to end and leaves what it says it leaves."""

import subprocess
import sys
from pathlib import Path

import pcmcnet as pn

ROOT = Path(__file__).parents[1]


def test_the_demonstration_writes_report_pictures_and_model(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    command = [sys.executable, str(ROOT / "examples" / "demo.py"), "--output", str(folder)]
    sizes = ["--train", "300", "--test", "100", "--epochs", "2"]
    done = subprocess.run([*command, *sizes], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "PCMC-Net 3x16" in done.stdout
    assert "641" in done.stdout
    assert {p.name for p in folder.iterdir()} == {"report.md", "preference.png", "learning.png", "model"}
    assert done.stdout.split("\n\n")[1] in (folder / "report.md").read_text("utf-8")
    assert pn.load(folder / "model").num_parameters == 641
