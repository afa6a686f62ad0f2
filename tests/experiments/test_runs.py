"""Run folders: what is on disk, resuming, and what a damaged or foreign folder leads to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pandas
import pytest

from edpbrl_gym._places import hold_folder
from edpbrl_gym.experiments.framework import Experiment
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
    with pytest.raises(RunFolderError, match="Expected a results file"):
        read_results(tmp_path)
    (tmp_path / "results.parquet").write_bytes(b"PAR1")
    with pytest.raises(RunFolderError, match="Expected a results file"):
        read_results(tmp_path)
    with pytest.raises(FileNotFoundError, match="run the experiment"):
        read_results(tmp_path / "nowhere")


# -- one process at a time ---------------------------------------------------------------------------------------------

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


def test_damaged_provenance_is_named(tmp_path):
    folder = RunFolder.open(tmp_path / "run", kind="synthetic", config=CONFIG)
    (tmp_path / "run" / "provenance.json").write_text("{")
    with pytest.raises(RunFolderError, match=r"provenance\.json, could not read it"):
        folder.begin()


def test_a_run_that_was_killed_before_its_settings_were_written_begins_anew(tmp_path):
    (tmp_path / ".lock").write_text("1\n")
    (tmp_path / f".config.json.1.{'0' * 32}.part").write_text("{")
    RunFolder.open(tmp_path, kind="synthetic", config=CONFIG)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json"]


def test_processes_that_open_at_once_agree_on_one(tmp_path):
    command = [sys.executable, "-c", textwrap.dedent(HOLDING), str(tmp_path / "run")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    crowd = [subprocess.Popen(command, **pipes) for _ in range(3)]
    try:
        said = [one.stdout.readline() for one in crowd]
        assert sorted(said) == ["", "", "open\n"]
        assert len(json.loads((tmp_path / "run" / "provenance.json").read_text())["sessions"]) == 1
    finally:
        for one in crowd:
            one.kill()
            one.wait()
            one.stdout.close()


TAKING_TURNS = """
    import os, sys
    from pathlib import Path
    from edpbrl_gym._places import RunFolderError, hold_folder
    folder, turns = Path(sys.argv[1]), 0
    while turns < 150:
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
    crowd = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    said = [one.communicate()[1] for one in crowd]
    assert [one.returncode for one in crowd] == [0] * 4, said
    assert not list(tmp_path.iterdir())


def test_a_lock_is_removed_by_its_holder_only(tmp_path):
    held = hold_folder(tmp_path)
    child = os.fork()
    if not child:
        del held  # its copy; the folder is held by the parent
        os._exit(0 if (tmp_path / ".lock").is_file() else 1)
    assert os.waitpid(child, 0)[1] == 0
    (tmp_path / ".lock").unlink()  # by somebody who does not know what it is
    (tmp_path / ".lock").write_text("of another")
    del held
    assert (tmp_path / ".lock").read_text() == "of another"


def test_what_is_known_is_written_only_by_who_opened_the_folder(tmp_path):
    RunFolder.open(tmp_path / "run", kind="synthetic", config=CONFIG)
    with pytest.raises(RuntimeError, match=r"RunFolder\.open"):
        RunFolder(tmp_path / "run", kind="synthetic", config=CONFIG).note(x=1)


def test_an_experiment_without_a_report_can_not_be_made():
    with pytest.raises(TypeError, match="'report'"):
        Experiment("thesis", "edpbrl thesis", dict, lambda settings: [], lambda *given: [])


def test_a_lock_that_is_a_link_is_refused_and_what_it_leads_to_stays(tmp_path):
    (tmp_path / "kept").write_text("precious")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").symlink_to(tmp_path / "kept")
    with pytest.raises(RunFolderError, match="no link at .*lock; remove it"):
        RunFolder.open(tmp_path / "run", kind="synthetic", config=CONFIG)
    assert (tmp_path / "kept").read_text() == "precious"


@pytest.mark.parametrize("name", ["provenance.json", "results.parquet", "parts"])
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
