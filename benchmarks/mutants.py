"""Do the tests notice when the code is wrong? Mutants of the mathematics, by mutmut, and how many the tests kill.

    pip install mutmut==3.8.1
    OMP_NUM_THREADS=1 python -m benchmarks.mutants                     # the table of docs/trust.md
    OMP_NUM_THREADS=1 python -m benchmarks.mutants --room likelihood --sample 50

A mutant is the code with one change: another operator, constant, argument, default or condition. Each is run against
the tests of its room that reach it, fastest first, until one fails; tests that take longer than `--slowest` seconds are
left out, and hypothesis draws a fifth of its examples ("quick"). So what is reported is what quick tests notice: all
tests notice at least as much. Mutants that change nothing but the words of an error are not drawn. Of the others
`--sample` are drawn for each room, with equal probabilities; the interval is Wilson's at 95%. A mutant that no test
reaches counts as survived, one that runs into a limit of time or memory as killed.

mutmut copies packages without following links: the copy gets the links to agents/ and envs/ first.
"""

from __future__ import annotations

import ast
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import make_parser, show
from edpbrl_gym.reporting.tables import TextTable

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "mutants.json"
# exit codes of mutmut's workers
_KILLED, _SURVIVED, _UNREACHED = (1, 3), (0,), (5, 33)
_MEMORY = 6 << 30  # bytes of a worker: a loop without end may collect arrays


@dataclass(frozen=True)
class Room:
    """What is mutated, and the tests that should notice.

    Attributes:
        files: Patterns of source files; `*` ends at a folder.
        tests: Patterns of files and folders of tests.
    """

    files: tuple[str, ...]
    tests: tuple[str, ...]


ROOMS = {
    "mdp": Room(("edpbrl_gym/mdp/*.py",), ("tests/mdp",)),
    "likelihood": Room(("edpbrl_gym/likelihood/*.py",), ("tests/likelihood",)),
    "design.criteria": Room(("edpbrl_gym/design/criteria.py",), ("tests/design/test_criteria.py",)),
    "design.information": Room(("edpbrl_gym/design/information.py",), ("tests/design/test_information.py",)),
    "estimation": Room(("edpbrl_gym/estimation/*.py",), ("tests/estimation/*.py",)),
    "estimation.population": Room(("edpbrl_gym/estimation/population/*.py",), ("tests/estimation/population",)),
}


class Words(ast.NodeTransformer):
    """Takes the words of errors out of a function: messages, and the names and advice given to checks."""

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        """Drop the words of an error."""
        if isinstance(node.exc, ast.Call):
            node.exc.args, node.exc.keywords = [], []
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Drop the name and the advice given to a check."""
        self.generic_visit(node)
        if ast.unparse(node.func).lstrip("_").startswith("check_"):
            node.args = node.args[:1] + node.args[2:]
            node.keywords = [one for one in node.keywords if one.arg not in ("name", "hint")]
        return node


def _plain(lines: list[str], span: list[int]) -> str:
    """A function without its name and without the words of errors."""
    tree = ast.parse(textwrap.dedent("\n".join(lines[span[0] - 1 : span[1]])))
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    function.name = ""
    return ast.dump(Words().visit(tree))


def prepare(folder: Path, room: Room) -> None:
    """Copy the project and write mutmut's settings."""
    names = subprocess.run(
        ["git", "ls-files", "-z", "edpbrl_gym", "agents", "envs", "tests", "benchmarks", "pyproject.toml", "setup.cfg"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in filter(None, names.split("\0")):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target, follow_symlinks=False)
    settings = {
        "source_paths": ["edpbrl_gym"],
        "only_mutate": _names(room.files),  # as mutmut's own patterns go into folders
        "also_copy": ["agents", "envs", "benchmarks"],
        "pytest_add_cli_args_test_selection": _names(room.tests),
        "pytest_add_cli_args": ["-p", "no:cacheprovider", "-q"],
        "timeout_constant": 20.0,
        "timeout_multiplier": 5.0,
    }
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
    with open(folder / "pyproject.toml", "a", encoding="utf-8") as file:
        file.write("\n[tool.mutmut]\n" + "\n".join(lines) + "\n")
    package = folder / "mutants" / "edpbrl_gym"
    package.mkdir(parents=True)
    for name in ("agents", "envs"):
        (package / name).symlink_to(f"../{name}")


def _names(patterns: tuple[str, ...]) -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for pattern in patterns for path in ROOT.glob(pattern))


def mutmut(folder: Path, python: str, *names: str) -> None:
    """Run mutmut on mutants by name; what it prints goes to mutmut.log."""
    environment = {**os.environ, "EDPBRL_TEST_PROFILE": "quick", "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)
    with open(folder / "mutmut.log", "a", encoding="utf-8") as log:
        command = [python, "-m", "mutmut", "run", "--max-children", "1", *names]
        subprocess.run(
            command, cwd=folder, env=environment, stdout=log, stderr=log, check=False, preexec_fn=_limit_memory
        )


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))


def candidates(folder: Path) -> dict[str, str]:
    """All mutants but those of words, with the file of each."""
    found = {}
    for meta in sorted((folder / "mutants").rglob("*.meta")):
        file = meta.with_suffix("")
        if not Path(f"{file}.spans").is_file():
            continue
        spans = json.loads(Path(f"{file}.spans").read_text(encoding="utf-8"))["spans"]
        lines = file.read_text(encoding="utf-8").split("\n")
        originals: dict[str, str] = {}
        for name in json.loads(meta.read_text(encoding="utf-8"))["exit_code_by_key"]:
            own = name.rpartition(".")[2]
            first = own.partition("__mutmut_")[0]
            if first not in originals:
                originals[first] = _plain(lines, spans[f"{first}__mutmut_orig"])
            if _plain(lines, spans[own]) != originals[first]:
                found[name] = str(file.relative_to(folder / "mutants"))
    return found


def leave_out_slow(folder: Path, seconds: float) -> tuple[set[str], int]:
    """Take slow tests from mutmut's table of who tests what; the functions that are left with tests, and how many."""
    path = folder / "mutants" / "mutmut-stats.json"
    stats = json.loads(path.read_text(encoding="utf-8"))
    durations = stats["duration_by_test"]
    # by the clock; where other processes want the same cores, all tests take longer than the processor was theirs
    stretch = max(1.0, sum(durations.values()) / stats["stats_time"])
    slow = {name for name, duration in durations.items() if duration > seconds * stretch}
    table = stats["tests_by_mangled_function_name"]
    for name, tests in table.items():
        table[name] = [one for one in tests if one not in slow]
    path.write_text(json.dumps(stats), encoding="utf-8")
    return {name for name, tests in table.items() if tests}, len(slow)


def measure(name: str, *, sample: int, seed: int, slowest: float, python: str, keep: Path | None) -> dict[str, object]:
    """Mutate one room."""
    folder = Path(tempfile.mkdtemp(prefix=f"mutants-{name}-")) if keep is None else keep / name
    prepare(folder, ROOMS[name])
    mutmut(folder, python, "none at all")  # mutants and the table of tests, then an error
    if not (folder / "mutants" / "mutmut-stats.json").is_file():
        raise SystemExit(f"mutmut could not run the tests of {name}: see {folder / 'mutmut.log'}")
    everything = candidates(folder)
    drawn = sorted(random.Random(seed).sample(sorted(everything), min(sample, len(everything))))
    tested, slow = leave_out_slow(folder, slowest)
    reached = [one for one in drawn if one.partition("__mutmut_")[0] in tested]
    mutmut(folder, python, *reached)
    codes: dict[str, int | None] = {}
    for meta in (folder / "mutants").rglob("*.meta"):
        codes |= json.loads(meta.read_text(encoding="utf-8"))["exit_code_by_key"]
    verdicts = {one: _verdict(codes[one]) if one in reached else "no test" for one in drawn}
    survivors = {
        one: subprocess.run(
            [python, "-m", "mutmut", "show", one], cwd=folder, capture_output=True, text=True, check=False
        ).stdout
        for one, verdict in verdicts.items()
        if verdict in ("survived", "no test")
    }
    if keep is None:
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "mutants": len(everything),
        "seed": seed,
        "slow tests left out": slow,
        "verdicts": dict(Counter(verdicts.values())),
        "files": dict(Counter(everything[one] for one in drawn)),
        "survivors": survivors,
    }


def _verdict(code: int | None) -> str:
    if code in _KILLED:
        return "killed"
    if code in _SURVIVED:
        return "survived"
    return "no test" if code in _UNREACHED else "not run" if code is None else "timeout"


def wilson(killed: int, count: int) -> tuple[float, float]:
    """Wilson's interval of a share, at 95%."""
    z = 1.959963984540054
    middle = (killed + z * z / 2) / (count + z * z)
    half = z / (count + z * z) * (killed * (count - killed) / count + z * z / 4) ** 0.5
    return middle - half, middle + half


def table(results: dict[str, dict[str, object]]) -> TextTable:
    """The table of the page."""
    rows = []
    for name, result in results.items():
        verdicts = result["verdicts"]
        assert isinstance(verdicts, dict)
        count = sum(verdicts.values()) - verdicts.get("not run", 0)
        killed = verdicts.get("killed", 0) + verdicts.get("timeout", 0)
        low, high = wilson(killed, count)
        share = f"{killed / count:.0%} ({low:.0%} to {high:.0%})"
        rows.append((name, f"{result['mutants']:,}", str(count), str(killed), str(count - killed), share))
    return TextTable("", ("room", "mutants", "drawn", "killed", "survived", "share killed"), rows, words=1)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--room", nargs="+", choices=ROOMS, default=list(ROOMS))
    parser.add_argument("--sample", type=int, default=150, help="mutants drawn of each room")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw")
    parser.add_argument("--slowest", type=float, default=2.0, help="tests that take more seconds are left out")
    parser.add_argument("--python", default=sys.executable, help="Python with mutmut and the tests' packages")
    parser.add_argument("--keep", type=Path, help="new folder for the mutants, to look at")
    options = parser.parse_args()
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}
    for name in options.room:
        results[name] = measure(
            name,
            sample=options.sample,
            seed=options.seed,
            slowest=options.slowest,
            python=options.python,
            keep=options.keep,
        )
        RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    show(table({name: results[name] for name in ROOMS if name in results}))


if __name__ == "__main__":
    main()
