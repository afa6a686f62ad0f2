"""Run folders: what is on disk, resuming, and what a damaged or foreign folder leads to."""

import json
import subprocess
import sys
import textwrap

import pandas
import pytest

from edpbrl_gym.experiments.runs import RunFolder, RunFolderError, read_results

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


HOLDING = """
    import sys, time
    from edpbrl_gym.experiments.runs import RunFolder
    folder = RunFolder.open(sys.argv[1], kind="synthetic", config={"runs": 3, "episodes": (1, 2), "text": "a"})
    folder.begin()
    print("open", flush=True)
    time.sleep(600)
"""


def test_a_second_process_is_told_so_and_a_killed_one_holds_nothing(tmp_path, capsys):
    out = tmp_path / "run"
    command = [sys.executable, "-c", textwrap.dedent(HOLDING), str(out)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None and first.stdout.readline() == "open\n"
        before = {path.name: path.read_bytes() for path in out.iterdir()}
        with pytest.raises(RunFolderError, match=rf"another process \({first.pid}\) runs in it; wait until it ends"):
            RunFolder.open(out, kind="synthetic", config=CONFIG)
        assert {path.name: path.read_bytes() for path in out.iterdir()} == before
        (out / f".results.parquet.{first.pid}.{'0' * 32}.part").write_text("half")  # as a kill leaves it
        first.kill()
    folder = RunFolder.open(out, kind="synthetic", config=CONFIG)
    folder.begin()
    assert len(folder.provenance["sessions"]) == 2 and not list(out.glob("*.part")) and not list(out.glob(".*.part"))
    del folder
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as later:  # free again once it is not used
        assert later.stdout is not None and later.stdout.readline() == "open\n"
        later.kill()


def test_a_run_that_was_killed_before_its_settings_were_written_begins_anew(tmp_path):
    (tmp_path / ".lock").write_text("1\n")
    (tmp_path / f".config.json.1.{'0' * 32}.part").write_text("{")
    RunFolder.open(tmp_path, kind="synthetic", config=CONFIG)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json"]


TAKING_TURNS = """
    import os, sys
    from pathlib import Path
    from edpbrl_gym._places import RunFolderError, hold_folder
    folder, turns = Path(sys.argv[1]), 0
    while turns < 60:
        try:
            held = hold_folder(folder)
        except RunFolderError as error:
            assert "another process" in str(error), error
            continue
        os.close(os.open(folder / "inside", os.O_CREAT | os.O_EXCL))  # fails where another is inside
        (folder / "inside").unlink()
        turns += 1
        del held
"""


def test_processes_that_take_turns_are_never_inside_at_once_and_leave_no_lock(tmp_path):
    command = [sys.executable, "-c", textwrap.dedent(TAKING_TURNS), str(tmp_path)]
    crowd = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    said = [one.communicate()[1] for one in crowd]
    assert [one.returncode for one in crowd] == [0] * 3, said
    assert not list(tmp_path.iterdir())


def test_a_lock_that_is_a_link_is_refused_and_what_it_leads_to_stays(tmp_path):
    (tmp_path / "kept").write_text("precious")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").symlink_to(tmp_path / "kept")
    with pytest.raises(RunFolderError, match="no link at .*lock; remove it"):
        RunFolder.open(tmp_path / "run", kind="synthetic", config=CONFIG)
    assert (tmp_path / "kept").read_text() == "precious"


@pytest.mark.parametrize("name", ["provenance.json", "parts"])
def test_links_out_of_a_run_folder_are_refused_and_others_are_not(name, tmp_path):
    run, outside = tmp_path / "run", tmp_path / "outside"
    RunFolder.open(run, kind="synthetic", config=CONFIG)
    (tmp_path / "alias").symlink_to(run)  # the path that the user names may be a link
    (run / "inside.json").symlink_to("config.json")
    RunFolder.open(tmp_path / "alias", kind="synthetic", config=CONFIG)
    (run / name).symlink_to(outside)
    with pytest.raises(RunFolderError, match=f"{name} leads to .*outside; remove the link"):
        RunFolder.open(run, kind="synthetic", config=CONFIG)
    assert not outside.exists()
