"""Run folders: what is on disk, resuming, and what a damaged or foreign folder leads to."""

from __future__ import annotations

import json

import pandas
import pytest

from edpbrl_gym.experiments.runs import RunFolder, RunFolderError, read_results, write_atomically

CONFIG = {"runs": 3, "episodes": (1, 2), "text": "a"}


def test_a_folder_resumes_with_the_same_settings_only(tmp_path):
    folder = RunFolder.open(tmp_path / "run", kind="synthetic", config=CONFIG)
    folder.write_part("run-0000", pandas.DataFrame({"x": [1.0]}))
    again = RunFolder.open(tmp_path / "run", kind="synthetic", config=CONFIG)
    assert again.has_part("run-0000") and not again.has_part("run-0001")
    with pytest.raises(RunFolderError, match=r"runs was 3, now 4; text was \"a\", now \"b\".*another --out"):
        RunFolder.open(tmp_path / "run", kind="synthetic", config={**CONFIG, "runs": 4, "text": "b"})
    with pytest.raises(RunFolderError, match="'demo'.*'synthetic'"):
        RunFolder.open(tmp_path / "run", kind="demo", config=CONFIG)


def test_a_folder_with_other_files_or_damaged_settings_is_refused(tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(RunFolderError, match="other files"):
        RunFolder.open(tmp_path, kind="demo", config={})
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(RunFolderError, match="could not read"):
        RunFolder.open(tmp_path, kind="demo", config={})
    assert (tmp_path / "thesis.txt").read_text() == "precious"


def test_a_place_that_cannot_be_written_is_an_error_that_says_so(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="choose a folder that you can write to"):
        RunFolder.open(tmp_path / "file" / "run", kind="demo", config={})


def test_a_damaged_part_counts_as_unfinished(tmp_path):
    folder = RunFolder.open(tmp_path / "run", kind="synthetic", config=CONFIG)
    folder.write_part("a", pandas.DataFrame({"x": range(100)}))
    whole = folder.part_path("a").read_bytes()
    folder.part_path("a").write_bytes(whole[: len(whole) // 2])
    assert not folder.has_part("a")
    folder.part_path("a").write_bytes(whole[:40] + bytes(20) + whole[60:])
    assert not folder.has_part("a")
    folder.part_path("a").write_bytes(whole)
    assert folder.has_part("a")


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(tmp_path):
    target = tmp_path / "file.txt"
    write_atomically(target, lambda path: path.write_text("old"))

    def half(path):
        path.write_text("ne")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(target, half)
    assert target.read_text() == "old" and list(tmp_path.iterdir()) == [target]


def test_results_stand_alone_with_settings_and_provenance(tmp_path):
    folder = RunFolder.open(tmp_path / "run", kind="synthetic", config=CONFIG)
    folder.begin()
    folder.note(encoder="minilm")
    folder.begin()
    folder.finish()
    table = pandas.DataFrame({"agent": ["a", "b"], "error": [0.1, 0.2]})
    path = folder.write_results(table)
    for source in (path, tmp_path / "run"):
        found = read_results(source)
        pandas.testing.assert_frame_equal(found.table, table)
        assert found.kind == "synthetic" and found.config == {"runs": 3, "episodes": [1, 2], "text": "a"}
        assert found.provenance["encoder"] == "minilm" and len(found.provenance["sessions"]) == 2
        assert {"python", "numpy", "torch", "edpbrl-gym"} <= set(found.provenance["sessions"][0]["versions"])
    assert json.loads((tmp_path / "run" / "config.json").read_text())["kind"] == "synthetic"


def test_foreign_results_are_refused(tmp_path):
    pandas.DataFrame({"x": [1]}).to_parquet(tmp_path / "results.parquet")
    with pytest.raises(RunFolderError, match="another file"):
        read_results(tmp_path)
    (tmp_path / "results.parquet").write_bytes(b"PAR1")
    with pytest.raises(RunFolderError, match="another file"):
        read_results(tmp_path)
    with pytest.raises(FileNotFoundError, match="run the experiment"):
        read_results(tmp_path / "nowhere")
