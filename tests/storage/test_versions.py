"""Versions of installed packages."""

from importlib.metadata import version

from pcmcnet.storage.versions import package_version


def test_a_package_that_is_installed_has_a_version_and_another_says_so() -> None:
    assert package_version("numpy") == version("numpy")
    assert package_version("no-such-package") == "not installed as a package"
