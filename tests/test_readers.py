"""Every reader of files, given damaged ones: an error that says what was expected, or something whole; never another.

`EDPBRL_TEST_DAMAGES` sets how many of each kind of random damage are tried (2); 100 take minutes.
"""

from __future__ import annotations

import importlib.util
import os
import re
import warnings
import zlib

import numpy as np
import pytest

from tests.helpers.damage import damages
from tests.helpers.file_readers import READERS

DAMAGES = int(os.environ.get("EDPBRL_TEST_DAMAGES", "2"))


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def missing(name: str) -> list[str]:
    return [package for package in READERS[name].needs if importlib.util.find_spec(package) is None]


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_read_whole_or_refused_in_words(name, tmp_path):
    if missing(name):
        pytest.skip(f"needs {missing(name)}")
    reader = READERS[name]
    files, read = reader.make(tmp_path)
    reader.check(read())  # undamaged, it is read
    wrong, tried, refused = [], 0, 0
    for file in files:
        whole = {path: path.read_bytes() for path in files}
        rng = np.random.default_rng(zlib.crc32(f"{name}/{files.index(file)}".encode()))
        for what, data in damages(whole[file], rng, DAMAGES):
            for path, content in whole.items():  # a reader may mend, replace or remove files
                path.write_bytes(content)
            file.write_bytes(data)
            tried += 1
            problem = problem_with(reader, read)
            refused += problem is None
            if problem:
                wrong.append(f"{file.name}, {what}: {problem}")
        for path, content in whole.items():
            path.write_bytes(content)
    assert not wrong, f"{len(wrong)} of {tried}:\n" + "\n".join(wrong[:40])
    assert tried > 15 * len(files)


def problem_with(reader, read) -> str | None:
    """What is wrong with how a damaged file was taken, or None."""
    try:
        found = read()
    except (ValueError, OSError) as error:
        if reader.ignores:
            return f"it should be replaced, got {error}"[:300]
        if isinstance(error, UnicodeError) or not re.search(reader.says, str(error)):
            return f"{type(error).__name__} does not say what was expected: {error}"[:300]
        return None
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:300]
    try:
        reader.check(found)
    except Exception as error:
        return f"half read: {type(error).__name__}: {error}"[:300]
    return None
