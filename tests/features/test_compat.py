"""The torchvision repair, in processes of its own: it must come before the first import of torchvision."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import textwrap

import pytest

needs_torchvision = pytest.mark.skipif(
    importlib.util.find_spec("torchvision") is None, reason="torchvision is not installed: nothing to repair"
)


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120)


@needs_torchvision
def test_the_repair_is_made_exactly_where_the_import_fails_without_it():
    broken = run("import torchvision").returncode != 0
    repaired = run(
        """
        from edpbrl_gym import _compat
        asked = []
        import torch
        define = torch.library.define
        torch.library.define = lambda *args, **kwargs: (asked.append(args[0]), define(*args, **kwargs))
        _compat.declare_torchvision_schemas()
        print(sorted(asked))
        """
    )
    expected = ["torchvision::nms", "torchvision::qnms"] if broken else []
    assert repaired.stdout.strip() == str(expected), repaired.stderr


@pytest.mark.needs("clip")
def test_a_torchvision_that_fits_is_left_alone(tmp_path):
    # a package whose library loads: the C library of Python's own extension modules stands for the operators
    package = tmp_path / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text("")
    result = run(
        f"""
        import sys, shutil, pathlib, torch
        library = next(pathlib.Path(torch.__file__).parent.glob("lib/libtorch_global_deps.*"))
        shutil.copy(library, pathlib.Path({str(package)!r}) / "_C.so")
        sys.path.insert(0, {str(tmp_path)!r})
        from edpbrl_gym._compat import declare_torchvision_schemas
        asked = []
        torch.library.define = lambda *args, **kwargs: asked.append(args)
        declare_torchvision_schemas()
        print(asked)
        """
    )
    assert result.stdout.strip() == "[]", result.stderr
