import errno
import hashlib
import json
import os
import pickle
import shutil
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from safetensors.torch import load_file, save

import forked
from pcmcnet.data import ChoiceData
from pcmcnet.errors import ArtifactError, ConfigError, NotFittedError
from pcmcnet.models import PCMCNet, load
from pcmcnet.models.interface import saving
from pcmcnet.models.interface.saving import FORMAT, manifest_digest
from pcmcnet.training.run_folder import open_run_folder

MakeTrips = Callable[..., pa.Table]

SRC = Path(__file__).parents[3] / "src"
CHECKED = ["config.json", "encoder.json", "history.json", "schema.json", "weights.safetensors"]
CONTENT = ["README.md", *CHECKED]
STRIDE = 7  # every seventh position of a file; a prime reaches every kind of position


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A saved model that tests may alter."""
    return Path(shutil.copytree(saved, tmp_path / "model"))


def edit_manifest(folder: Path, change: Callable[[dict[str, Any]], Any], *, sign: bool = True) -> None:
    """Change the manifest, and update its hash unless the change should be detected."""
    manifest = json.loads((folder / "model.json").read_bytes())
    change(manifest)
    if sign:
        manifest.pop("sha256", None)
        manifest["sha256"] = manifest_digest(manifest)
    (folder / "model.json").write_text(json.dumps(manifest))


def replace_file(folder: Path, name: str, content: bytes) -> None:
    """Replace a file as if it had been saved."""
    (folder / name).write_bytes(content)
    noted = {"files": hashlib.sha256(content).hexdigest(), "sizes": len(content)}
    edit_manifest(folder, lambda m: [m[entry].update({name: value}) for entry, value in noted.items()])


def listing(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*"))


# -- round trip ----------------------------------------------------------------------------------------------------


def test_a_saved_model_is_loaded_unchanged(saved: Path, fitted: PCMCNet, trips: ChoiceData) -> None:
    back = load(saved)
    assert type(back) is PCMCNet
    np.testing.assert_array_equal(back.predict_log_proba(trips), fitted.predict_log_proba(trips))
    assert back.config == fitted.config
    assert back.schema == fitted.schema
    assert back.history == fitted.history
    assert (back.table_, back.record_) == (fitted.table_, fitted.record_)
    assert str(back.summary()) == str(fitted.summary())
    assert back.num_parameters == fitted.num_parameters


def test_a_fresh_process_predicts_the_same_bits(
    saved: Path, fitted: PCMCNet, make_trips: MakeTrips, tmp_path: Path
) -> None:
    table = make_trips(seed=5)
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    code = (
        "import sys, numpy, pcmcnet\n"
        "model, table, out = sys.argv[1:]\n"
        "numpy.save(out, pcmcnet.load(model).predict_log_proba(table))\n"
    )
    run = forked.run(code, saved, tmp_path / "t.parquet", tmp_path / "p.npy")
    assert run.returncode == 0, run.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "p.npy"), fitted.predict_log_proba(table))


def test_a_loaded_model_can_be_saved(saved: Path, tmp_path: Path) -> None:
    resaved = load(str(saved)).save(str(tmp_path / "again"))
    for name in ("weights.safetensors", "encoder.json", "config.json", "schema.json", "history.json"):
        assert (resaved / name).read_bytes() == (saved / name).read_bytes()


def test_loading_does_not_change_the_random_state(saved: Path) -> None:
    before = torch.get_rng_state()
    load(saved)
    assert torch.equal(torch.get_rng_state(), before)


# -- content of the folder -----------------------------------------------------------------------------------------


def test_the_folder_holds_only_json_markdown_and_safetensors(saved: Path) -> None:
    assert listing(saved) == sorted([*CONTENT, "model.json"])
    for file in saved.glob("*.json"):
        json.loads(file.read_text("utf-8"), parse_constant=_refuse)
    assert set(load_file(saved / "weights.safetensors"))


def _refuse(word: str) -> NoReturn:
    raise AssertionError(f"{word} is not JSON")


def test_loading_executes_no_code(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise AssertionError("a pickle was read")

    for module, name in ((pickle, "load"), (pickle, "loads"), (pickle, "Unpickler"), (torch, "load")):
        monkeypatch.setattr(module, name, refuse)
    assert load(saved).num_parameters > 0


def test_the_model_card_describes_the_model(saved: Path, fitted: PCMCNet) -> None:
    card = (saved / "README.md").read_text("utf-8")
    assert card.startswith("# model: a PCMCNet choice model")
    for line in (
        "| choice set | trip |",
        "| individual | income, purpose |",
        "| features | price, minutes, comfort |",
        "| available | open |",
    ):
        assert line in card
    assert str(fitted.summary()) in card
    assert fitted.table_.fingerprint in card


@pytest.mark.skipif(sys.platform != "linux", reason="has only names in UTF-8")
def test_the_name_of_a_folder_need_not_be_utf_8(fitted: PCMCNet, trips: ChoiceData, tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    fitted.save(folder)
    assert np.array_equal(load(folder).predict_proba(trips), fitted.predict_proba(trips))
    assert (folder / "README.md").read_text("utf-8").startswith("# caf\\udce9: a PCMCNet")


def test_the_manifest_has_versions_and_the_training_table(saved: Path, trips: ChoiceData) -> None:
    manifest = json.loads((saved / "model.json").read_bytes())
    assert manifest["model"] == "pcmcnet"
    assert manifest["versions"]["torch"] == version("torch")
    assert manifest["fit"]["table"]["fingerprint"] == trips.fingerprint()
    assert manifest["fit"]["table"]["choice_sets"] == len(trips)


# -- damage --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CHECKED)
def test_a_missing_file_is_named(name: str, folder: Path) -> None:
    (folder / name).unlink()
    with pytest.raises(ArtifactError, match=rf"file {name} is missing or unreadable \(No such file or directory\)"):
        load(folder)


@pytest.mark.parametrize("name", CHECKED)
@pytest.mark.parametrize("spoil", ["cut to nothing", "cut by a byte", "longer by a byte", "one bit flipped"])
def test_an_altered_file_is_named(name: str, spoil: str, folder: Path) -> None:
    content = bytearray((folder / name).read_bytes())
    if spoil == "one bit flipped":
        content[len(content) // 2] ^= 1
    elif spoil == "longer by a byte":
        content += b" "
    else:
        del content[0 if spoil == "cut to nothing" else -1 :]
    (folder / name).write_bytes(content)
    with pytest.raises(ArtifactError, match=rf"file {name} was truncated or altered"):
        load(folder)


def test_a_truncated_manifest_is_refused(folder: Path) -> None:
    whole = (folder / "model.json").read_bytes()
    for length in range(0, len(whole) - 1, STRIDE):  # the last byte is a newline
        (folder / "model.json").write_bytes(whole[:length])
        with pytest.raises(ArtifactError, match=r"model.json is damaged \(.*\): save the model again"):
            load(folder)


def test_a_flipped_bit_in_the_manifest_is_detected(folder: Path) -> None:
    whole = (folder / "model.json").read_bytes()
    for place in range(0, len(whole), STRIDE):
        changed = bytearray(whole)
        changed[place] ^= 1
        (folder / "model.json").write_bytes(changed)
        with pytest.raises(ArtifactError, match=r"model.json (is damaged|was altered)"):
            load(folder)


@pytest.mark.parametrize(
    "content", [b"[]", b"null", b'{"format": 2}', b'{"format": 2, "model": [], "fit": {}, "files": {}}', b"\xff"]
)
def test_a_manifest_of_another_form_is_refused(content: bytes, folder: Path) -> None:
    (folder / "model.json").write_bytes(content)
    with pytest.raises(ArtifactError, match=r"model.json is damaged \(.*\): save the model again"):
        load(folder)


def test_a_manifest_edited_by_hand_is_refused(folder: Path) -> None:
    edit_manifest(folder, lambda m: m["fit"]["table"].update(choice_sets=10**6), sign=False)
    with pytest.raises(ArtifactError, match=r"model.json was altered"):
        load(folder)


@pytest.mark.parametrize("name", ["../secret.json", "/etc/hostname", "a/b.json"])
def test_a_manifest_that_names_a_file_elsewhere_is_refused(name: str, folder: Path) -> None:
    (folder.parent / "secret.json").write_text("{}")
    edit_manifest(folder, lambda m: m["files"].update({name: hashlib.sha256(b"{}").hexdigest()}))
    with pytest.raises(ArtifactError, match=rf"expected a plain file name in model.json, got '{name}'"):
        load(folder)


def test_a_newer_format_recommends_an_upgrade(folder: Path) -> None:
    edit_manifest(folder, lambda m: m.update(format=FORMAT + 1), sign=False)
    with pytest.raises(ArtifactError, match=r"has format 3, but this version of pcmcnet reads format 2: upgrade"):
        load(folder)


def test_a_card_may_be_edited_or_removed(folder: Path, fitted: PCMCNet, trips: ChoiceData) -> None:
    (folder / "README.md").write_text("Our model of trips. Ask Ada.")
    np.testing.assert_array_equal(load(folder).predict_proba(trips), fitted.predict_proba(trips))
    (folder / "README.md").unlink()
    np.testing.assert_array_equal(load(folder).predict_proba(trips), fitted.predict_proba(trips))


@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        ("99.0.1", r"saved by pcmcnet 99.0.1, a newer version than \S+: option 'fancy' is unknown; upgrade"),
        ("0.0.1", r"the saved model is incomplete or altered \(option 'fancy' is unknown\)"),
        ("no number", r"the saved model is incomplete or altered \(option 'fancy' is unknown\)"),
    ],
)
def test_an_option_of_a_newer_version_is_named(theirs: str, message: str, folder: Path) -> None:
    config = json.loads((folder / "config.json").read_bytes())
    replace_file(folder, "config.json", json.dumps({**config, "fancy": 3}).encode())
    edit_manifest(folder, lambda m: m["versions"].update(pcmcnet=theirs))
    with pytest.raises(ArtifactError, match=message):
        load(folder)


def test_a_model_of_a_newer_version_is_named(folder: Path) -> None:
    edit_manifest(folder, lambda m: m.update(model="oracle", versions={"pcmcnet": "99.0"}))
    with pytest.raises(ArtifactError, match=r"saved by pcmcnet 99.0, a newer .*: unknown model 'oracle'; upg"):
        load(folder)


def test_a_newer_version_with_the_same_format_is_read(folder: Path) -> None:
    edit_manifest(folder, lambda m: m.update(versions={"pcmcnet": "99.0"}, motto="what newer versions may add"))
    assert load(folder).num_parameters > 0


def test_a_digest_identifies_the_expected_model(folder: Path) -> None:
    digest = hashlib.sha256((folder / "model.json").read_bytes()).hexdigest()  # as sha256sum prints it
    (folder / "README.md").write_text("edited")
    assert load(folder, digest=digest).num_parameters > 0
    assert load(folder, digest=digest.upper()).num_parameters > 0
    edit_manifest(folder, lambda m: m["fit"]["table"].update(choice_sets=1))
    with pytest.raises(ArtifactError, match=r"is not the expected model: the SHA-256 of its model.json is"):
        load(folder, digest=digest)


@pytest.mark.parametrize("digest", ["", "abc", "g" * 64, 7])
def test_an_invalid_digest_is_refused(digest: Any, folder: Path) -> None:
    with pytest.raises(ConfigError, match="digest: expected the 64 hexadecimal digits that sha256sum prints"):
        load(folder, digest=digest)


def test_an_unknown_kind_of_model_is_named(folder: Path) -> None:
    edit_manifest(folder, lambda m: m.update(model="pcmcnett"))
    with pytest.raises(ArtifactError, match=r"unknown model 'pcmcnett'. Did you mean 'pcmcnet'\?"):
        load(folder)


def test_a_missing_folder_or_a_file_is_refused(folder: Path) -> None:
    with pytest.raises(ArtifactError, match=r"nowhere: no such folder. Expected a folder written by fit or save"):
        load(folder / "nowhere")
    with pytest.raises(ArtifactError, match=r"config.json is a file: .* name the model first and the table second"):
        load(folder / "config.json")


def test_a_folder_without_a_manifest_is_not_a_model(folder: Path) -> None:
    (folder / "model.json").unlink()
    with pytest.raises(ArtifactError, match=r"is not a saved model: model.json is missing"):
        load(folder)


@pytest.mark.parametrize("name", ["checkpoint.safetensors", "refit-checkpoint.safetensors"])
def test_an_unfinished_run_is_not_a_model(name: str, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    with pytest.raises(ArtifactError, match=r"holds an unfinished run, not a model: continue it with fit --resume"):
        load(tmp_path)


@pytest.mark.parametrize("name", CHECKED)
def test_a_model_that_lacks_a_file_is_incomplete(name: str, folder: Path) -> None:
    edit_manifest(folder, lambda m: m["files"].pop(name))
    with pytest.raises(ArtifactError, match=rf"the saved model is incomplete or altered \('{name}'\)"):
        load(folder)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", b'{"hiden": [3]}', r"incomplete or altered \(option 'hiden' is unknown\)"),
        ("config.json", b'{"lr": -1}', r"incomplete or altered \(lr must be a number above 0"),
        ("config.json", b"{", r"incomplete or altered \("),
        ("schema.json", b"{}", r"incomplete or altered \(choice_set is missing"),
        ("encoder.json", b"{}", r"the saved encoder is incomplete \(KeyError"),
        ("history.json", b'{"epoch": 1}', r"incomplete or altered \(the history is not a list of epochs\)"),
        ("history.json", b"[1]", r"incomplete or altered \(the history is not a list of epochs\)"),
        (
            "weights.safetensors",
            b"no tensors",
            r"the saved weights cannot be read \(.*(header too large|HeaderTooLarge)",
        ),
        ("weights.safetensors", save({"x": torch.zeros(1)}), r"match the saved options, which describe a larger"),
    ],
)
def test_inconsistent_files_are_refused(name: str, content: bytes, message: str, folder: Path) -> None:
    replace_file(folder, name, content)
    with pytest.raises(ArtifactError, match=message):
        load(folder)


# -- saving --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("occupied", ["by a model", "by something else", "by a file"])
def test_an_occupied_folder_is_refused_and_unchanged(
    occupied: str, folder: Path, fitted: PCMCNet, tmp_path: Path
) -> None:
    place = {"by a model": folder, "by something else": tmp_path, "by a file": folder / "README.md"}[occupied]
    before = listing(tmp_path)
    with pytest.raises(ArtifactError, match=r"choose another folder, or remove it first"):
        fitted.save(place)
    assert listing(tmp_path) == before


def test_a_model_is_saved_into_a_new_empty_or_nested_folder(fitted: PCMCNet, trips: ChoiceData, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for place in (tmp_path / "new", tmp_path / "empty", tmp_path / "a" / "b" / "c"):
        assert fitted.save(place) == place
        np.testing.assert_array_equal(load(place).predict_proba(trips), fitted.predict_proba(trips))
        assert [p.name for p in place.parent.iterdir() if p.name.startswith(".")] == []


def test_saving_into_the_run_folder_removes_the_checkpoint(
    trips: ChoiceData, quick: dict[str, Any], tmp_path: Path
) -> None:
    model = PCMCNet(**quick).fit(trips, progress=False, run_folder=tmp_path / "run")
    assert listing(tmp_path / "run") == ["checkpoint.safetensors"]
    (tmp_path / "run" / ".99.checkpoint.safetensors").touch()  # left by a process killed while writing
    model.save(tmp_path / "run")
    assert listing(tmp_path / "run") == sorted([*CONTENT, "model.json"])
    np.testing.assert_array_equal(load(tmp_path / "run").predict_proba(trips), model.predict_proba(trips))


def test_saving_removes_an_incomplete_first_checkpoint(fitted: PCMCNet, tmp_path: Path) -> None:
    (tmp_path / ".99.checkpoint.safetensors").touch()
    fitted.save(tmp_path)
    assert listing(tmp_path) == sorted([*CONTENT, "model.json"])


def test_a_run_folder_with_other_files_is_refused_and_unchanged(
    trips: ChoiceData, quick: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "my-checkpoint.safetensors").touch()
    model = PCMCNet(**quick).fit(trips, progress=False, run_folder=tmp_path)
    with pytest.raises(ArtifactError, match="exists and is not empty"):
        model.save(tmp_path)
    assert listing(tmp_path) == ["checkpoint.safetensors", "my-checkpoint.safetensors"]


def test_a_parent_that_is_a_file_is_named(fitted: PCMCNet, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file" / "model", tmp_path / "file" / "deeper" / "model"):
        with pytest.raises(ArtifactError, match=r"model cannot be written: .*file is a file, not a folder"):
            fitted.save(place)
    assert listing(tmp_path) == ["file"]


@pytest.mark.parametrize("writes", range(len(CONTENT) + 1))
@pytest.mark.parametrize("place", ["new", "empty", "run"])
def test_a_full_disk_leaves_no_files(
    place: str, writes: int, fitted: PCMCNet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full after a number of files. Once there is space, saving works."""
    if place != "new":
        (tmp_path / "model").mkdir()
    if place == "run":
        (tmp_path / "model" / "checkpoint.safetensors").touch()
    before, left = listing(tmp_path), [writes]

    def write(path: Path, content: bytes, named: object) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        path.write_bytes(content)

    with monkeypatch.context() as patch:
        patch.setattr(saving, "write_bytes", write)
        with pytest.raises(ArtifactError, match=r"model cannot be written: No space left on device"):
            fitted.save(tmp_path / "model")
    assert listing(tmp_path) == before
    assert load(fitted.save(tmp_path / "model")).config == fitted.config


def test_an_unfitted_model_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(NotFittedError, match="this PCMCNet is not fitted"):
        PCMCNet().save(tmp_path / "model")
    assert listing(tmp_path) == []


@pytest.mark.parametrize("left", ["nothing", "a file", "no folder"])
def test_the_error_of_a_run_is_raised_whatever_is_left_in_its_folder(left: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"

    def run() -> None:
        with open_run_folder(folder, resume=False):
            if left == "a file":
                (folder / "search.json").touch()
            elif left == "no folder":
                folder.rmdir()
            raise ArtifactError("the disk is full.")

    with pytest.raises(ArtifactError, match="the disk is full"):
        run()
    assert folder.exists() == (left == "a file")
