"""The version of the code in every row of a benchmark: all that a unit runs is in it, in every process the same."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import edpbrl_gym
from edpbrl_gym.experiments.code import code_fingerprint, modules_behind
from edpbrl_gym.experiments.runs import read_results
from tests.helpers.small_vocabulary import write_embedded

UNIT = "edpbrl_gym.experiments.bench.unit"

# runs a small benchmark and prints the modules of the package whose code ran inside its units
TRACED = """
    import json, sys, threading
    from dataclasses import replace
    from pathlib import Path

    from edpbrl_gym.experiments.bench.run import BENCH as experiment
    from edpbrl_gym.experiments.bench.settings import BenchSettings
    from edpbrl_gym.experiments.framework import run_experiment

    vocabulary, encoder, out = sys.argv[1:]
    settings = BenchSettings(
        vocabulary=vocabulary, encoder=encoder, questions=(2, 3), episodes=(1, 2), prompt_episodes=(2,)
    )
    regimes = ["items-d10-K4", "scale-20"]
    arms = ["random", "bald", "qeubo,prior=vocabulary", "thinning", "adaptive", "adaptive-best", "tuples", "ed-pbrl"]
    ran = set()

    def note(frame, event, argument):
        ran.add(frame.f_code.co_filename)

    def traced(*given):
        threading.settrace(note)
        sys.settrace(note)
        try:
            return experiment.run_unit(*given)
        finally:
            sys.settrace(None)
            threading.settrace(None)

    units = experiment.plan(settings, regimes=regimes, arms=arms, seeds=1)
    run_experiment(replace(experiment, run_unit=traced), settings, out, units=units, jobs=1)
    import edpbrl_gym

    root = Path(edpbrl_gym.__file__).parent
    places = {name.resolve(): name.name for name in root.iterdir() if name.is_dir()}  # agents/ and envs/ are links
    files = {Path(file).resolve() for file in ran if file.endswith(".py")}
    inside = [(place, file) for place in places for file in files if place in file.parents]
    parts = [(places[place], *file.relative_to(place).parts) for place, file in inside]
    parts += [(file.name,) for file in files if file.parent == root.resolve()]
    names = {".".join(("edpbrl_gym", *part)).removesuffix(".py").removesuffix(".__init__") for part in parts}
    print(json.dumps(sorted(names)))
"""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    return write_embedded(tmp_path_factory.mktemp("inputs"))


def test_every_module_that_a_unit_runs_is_in_the_hash(inputs, tmp_path):
    code = [sys.executable, "-c", textwrap.dedent(TRACED), *inputs, str(tmp_path / "run")]
    done = subprocess.run(code, capture_output=True, text=True, check=True)
    ran = set(json.loads(done.stdout))
    assert {"edpbrl_gym.likelihood.choice", "edpbrl_gym.features.memo", "edpbrl_gym.estimation.metrics", UNIT} <= ran
    assert {"edpbrl_gym.planners.adaptive", "edpbrl_gym.estimation.neighbourhood"} <= ran
    assert "edpbrl_gym.planners.pool.uncertainty" in ran  # named by an import string
    assert ran - set(modules_behind(UNIT)) == set()
    (written,) = set(read_results(tmp_path / "run").table["code"])
    assert written == code_fingerprint(UNIT)  # the other process had loaded other modules


def test_what_no_unit_loads_is_not_in_the_hash():
    modules = modules_behind(UNIT)
    assert not [name for name in modules if name.startswith("edpbrl_gym.cli")]
    others = ("reporting.report", "experiments.framework", "experiments.bench.report")
    assert not {f"edpbrl_gym.{name}" for name in others} & set(modules)
    with pytest.raises(ValueError, match="a module of edpbrl_gym, got 'edpbrl_gym.nothing'"):
        modules_behind("edpbrl_gym.nothing")


def test_the_hash_changes_with_the_code_behind_a_unit_and_with_nothing_else(tmp_path):
    root = Path(edpbrl_gym.__file__).parent
    shutil.copytree(root, tmp_path / "edpbrl_gym", ignore=shutil.ignore_patterns("__pycache__"))  # links become folders
    code = """
        from pathlib import Path
        import edpbrl_gym
        from edpbrl_gym.experiments.code import code_fingerprint
        root = Path(edpbrl_gym.__file__).parent

        def found():
            code_fingerprint.cache_clear()
            return code_fingerprint("edpbrl_gym.experiments.bench.unit")

        found_first = found()
        for name in ("likelihood/choice", "features/memo", "agents/design", "envs/prompt_model", "experiments/code"):
            before = found()
            with open(root / f"{name}.py", "a") as file:
                file.write("# changed")
            assert found() != before, name
        before = found()
        for name in ("cli/demo", "experiments/bench/report", "experiments/bench/rank_tables"):
            with open(root / f"{name}.py", "a") as file:
                file.write("# changed")
        assert found() == before != found_first
        print(root)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout.strip() == str(tmp_path / "edpbrl_gym"), done.stderr
