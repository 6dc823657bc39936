import subprocess
import sys
from importlib import import_module

import pytest

import probes

HEAVY = ("torch", "numpy", "h5py", "pydantic", "yaml", "click")


def test_importing_the_package_imports_nothing_heavy() -> None:
    program = f"import sys, probes\nassert not set({HEAVY!r}) & set(sys.modules), sorted(set({HEAVY!r}) & set(sys.modules))"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("name", sorted(set(probes.__all__) - {"__version__"}))
def test_every_public_name_is_found_in_its_module(name: str) -> None:
    module, _, attribute = probes._PUBLIC[name].partition(":")
    assert getattr(probes, name) is getattr(import_module(module), attribute)


def test_public_names_are_few() -> None:
    assert len(probes.__all__) <= 14
    assert set(dir(probes)) == set(probes.__all__)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        _ = probes.nothing
