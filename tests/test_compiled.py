"""A package without its compiled libraries says so once, and how to get them."""

import logging
import shutil
import subprocess
import sysconfig
from pathlib import Path

import numpy as np
import pytest

import pcmcnet as pn
from pcmcnet import compiled
from pcmcnet.datasets import intercity
from pcmcnet.models import tree_growth
from pcmcnet.training import compiled_steps

SOURCE = Path(compiled_steps.__file__).with_name("compiled_steps.c")


def test_missing_libraries_are_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for module, name in ((compiled_steps, "libsteps.so"), (tree_growth, "libtrees.so")):
        monkeypatch.setattr(module, "LIBRARY_FILE", tmp_path / name)
        module.compiled_library.cache_clear()
    compiled._warn_of_missing_libraries.cache_clear()
    try:
        with caplog.at_level(logging.WARNING, logger="pcmcnet"):
            pn.PCMCNet(epochs=1, weight_decay=0.1, members=1, classes=1).fit(intercity.read()[:30], progress=False)
            assert tree_growth.compiled_library() is None
    finally:
        compiled_steps.compiled_library.cache_clear()
        tree_growth.compiled_library.cache_clear()
    notes = [message for message in caplog.messages if "compiled" in message]
    assert len(notes) == 1
    assert "Install a C compiler, then run: pip install --force-reinstall --no-deps --no-binary pcmcnet" in notes[0]


@pytest.mark.slow  # compiles: about 5 s
def test_vectors_without_avx_give_the_same_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compilers that know no AVX use vectors of half the length. Fused products round differently: 1e-4."""
    compiler = shutil.which((sysconfig.get_config_var("CC") or "cc").split()[0]) or shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    library = tmp_path / "libsteps.so"
    flags = ["-O3", "-std=gnu11", "-fno-math-errno", "-Wno-psabi", "-fPIC", "-shared", "-DPCMCNET_NO_AVX"]
    subprocess.run([compiler, *flags, "-o", str(library), str(SOURCE), "-lm"], check=True)
    data = intercity.read()[:200]
    model = pn.PCMCNet(epochs=2, weight_decay=0.1, members=1, classes=1)
    expected = model.fit(data, seed=0, progress=False).predict_proba(data)
    try:
        monkeypatch.setattr(compiled_steps, "LIBRARY_FILE", library)
        compiled_steps.compiled_library.cache_clear()
        assert compiled_steps.compiled_library() is not None
        p = model.fit(data, seed=0, progress=False).predict_proba(data)
    finally:
        compiled_steps.compiled_library.cache_clear()
    np.testing.assert_allclose(p, expected, rtol=0, atol=1e-4)
