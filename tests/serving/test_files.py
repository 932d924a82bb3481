"""The files of the page have known types and are read when the server starts. No other file is served."""

from pathlib import Path
from typing import Any

import pytest

from pcmcnet.models import PCMCNet
from pcmcnet.serving import app


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(app, "files", lambda package: tmp_path)
    (tmp_path / "secret.html").write_text("outside of the page")
    return tmp_path / "page"


def test_the_page_is_served_with_its_types(folder: Path, net: PCMCNet, make_client: Any) -> None:
    (folder / "parts").mkdir(parents=True)
    (folder / "index.html").write_text("<p>hello</p>")
    (folder / "app.js").write_text("1;")
    (folder / "parts" / "style.css").write_text("p {}")
    (folder / "notes.py").write_text("secret")
    client = make_client(net, token="secret")
    answer = client.get("/")
    assert (answer.text, answer.headers["content-type"]) == ("<p>hello</p>", "text/html; charset=utf-8")
    assert client.get("/app.js").headers["content-type"] == "text/javascript; charset=utf-8"
    assert client.get("/parts/style.css").headers["content-type"] == "text/css; charset=utf-8"
    (folder / "app.js").unlink()
    assert client.get("/app.js").text == "1;"
    headers = {"Authorization": "Bearer secret"}
    for path in ("/notes.py", "/secret.html", "/../secret.html", "/parts/../../secret.html", "/parts", "/index.html"):
        assert client.get(path, headers=headers).status_code == 404


def test_without_a_page_the_root_lists_working_paths(folder: Path, net: PCMCNet, make_client: Any) -> None:
    client = make_client(net)
    for path in client.get("/").json().values():
        assert client.get(path).status_code == 200


def test_the_page_is_part_of_the_package() -> None:
    assert app.page_files()["/"].kind == "text/html; charset=utf-8"
