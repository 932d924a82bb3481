"""The demonstration runs from end to end and writes the announced files."""

import json
from pathlib import Path

import forked
import pcmcnet as pn

ROOT = Path(__file__).parents[1]


def test_the_demonstration_writes_report_pictures_and_model(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    sizes = ["--train", 300, "--test", 100, "--epochs", 2]
    done = forked.run(forked.script(ROOT / "examples" / "demo.py"), "--output", folder, *sizes)
    assert done.returncode == 0, done.stderr
    assert "PCMC-Net 3x16" in done.stdout
    assert "641" in done.stdout
    reports = {"report.md", "report.html", "result.json"}
    assert {p.name for p in folder.iterdir()} == {*reports, "preference.png", "learning.png", "model"}
    values = json.loads((folder / "result.json").read_text("utf-8"))["values"]
    assert [row["parameters"] for row in values["rows"]] == [2, 97, 369, 641]
    assert f"{values['rows'][-1]['kl']:.4f}" in done.stdout
    assert pn.load(folder / "model").num_parameters == 641
