"""`edpbrl ask` about painted pictures of a small vocabulary."""

import pytest

from tests.helpers.small_vocabulary import write_embedded

PAINTED = "tests.helpers.painted:Painted"


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    return write_embedded(tmp_path_factory.mktemp("words"))


@pytest.fixture
def arguments(words, tmp_path):
    """Arguments that ask for the best of painted pictures, of which there are 40."""
    vocabulary, encoder = words
    return ["--out", tmp_path / "ask", "--cache", tmp_path / "images", "--vocabulary", vocabulary,
            "--encoder", encoder, "--renderer", PAINTED, "--pool", "40",
            "--format", "best"]  # fmt: skip
