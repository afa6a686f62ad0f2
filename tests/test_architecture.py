"""The rules of ARCHITECTURE.md: floors, light imports, symlinks, packaging."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from edpbrl_gym._compat import EXTRAS

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "edpbrl_gym"


def floors() -> dict[str, int]:
    """Room -> floor, from the table of ARCHITECTURE.md; a module may import its own room and rooms on lower floors."""
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    found = {}
    for floor, where in re.findall(r"^\| (\d) \| ([^|]+) \|", page, flags=re.M):
        for name in re.findall(r"`([\w./]+)`", where.partition("(")[0]):
            found[name.rstrip("/").removesuffix(".py").rpartition("/")[2]] = int(floor)
    return found


FLOORS = floors()
# what no module imports outside of its functions: all that the extras bring, and the tables of the core; but for what a
# judge's transport and a study's database are made of, which are imported themselves only when they are used
HEAVY = {name for packages in EXTRAS.values() for name in packages} | {"pandas", "pyarrow"}
HEAVY -= {"httpx2", "httpcore2", "sqlalchemy", "alembic"}
WEB = (
    PACKAGE / "study" / "web",
    PACKAGE / "asking" / "app.py",
    PACKAGE / "asking" / "site.py",
)  # loaded by servers only
MATHEMATICS = {"mdp", "likelihood", "comparisons", "estimation", "design"}
# rooms that also read one room of their own floor
BESIDE = {
    ("_compat", "_validation"),
    ("_log", "_files"),
    ("_places", "_files"),
    ("_texts", "_files"),
    ("_devices", "_files"),
    ("estimation", "comparisons"),
    ("rendering", "comparisons"),
}


def modules() -> list[Path]:
    found = [*PACKAGE.rglob("*.py"), *(ROOT / "agents").rglob("*.py"), *(ROOT / "envs").rglob("*.py")]
    return sorted({path.resolve() for path in found})


def room_of(path: Path) -> str:
    relative = path.relative_to(ROOT)
    parts = relative.parts if relative.parts[0] in ("agents", "envs") else relative.parts[1:]
    return parts[0].removesuffix(".py")


def top_level_imports(path: Path, *, everywhere: bool) -> list[str]:
    """Names of imported modules; only those outside functions unless ``everywhere``."""
    tree = ast.parse(path.read_text())
    names: list[str] = []

    def visit(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if isinstance(child, ast.Import):
                names.extend(alias.name for alias in child.names)
            elif isinstance(child, ast.ImportFrom) and child.module and not child.level:
                names.append(child.module)
            if everywhere or not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                visit(child)

    visit(tree)
    return names


def test_every_room_stands_on_a_floor_of_the_page():
    tree = {path.name.removesuffix(".py") for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert set(FLOORS) == tree - {"__init__", "__pycache__"}


def test_imports_go_down_the_house():
    wrong = []
    for path in modules():
        room = room_of(path)
        if room in ("__init__", "__main__"):
            continue
        assert room in FLOORS, f"{room} has no floor: add it to the table of ARCHITECTURE.md"
        for name in top_level_imports(path, everywhere=True):
            parts = name.split(".")
            if parts[0] != "edpbrl_gym" or len(parts) == 1:
                continue
            other = parts[1]
            assert other in FLOORS, f"{path.name} imports the unknown room {other}"
            if not (other == room or FLOORS[other] < FLOORS[room] or (room, other) in BESIDE):
                wrong.append(f"{path.relative_to(ROOT)} (floor {FLOORS[room]}) imports {name} (floor {FLOORS[other]})")
    assert not wrong


def test_heavy_packages_are_imported_where_they_are_used():
    wrong = {}
    for path in modules():
        allowed = set(EXTRAS["study"]) if any(path.is_relative_to(one) for one in WEB) else set()
        heavy = {name.split(".")[0] for name in top_level_imports(path, everywhere=False)} & HEAVY - allowed
        if heavy:
            wrong[str(path.relative_to(ROOT))] = sorted(heavy)
    assert not wrong, "import inside the function"


@pytest.mark.parametrize("room", sorted(MATHEMATICS))
def test_the_mathematics_knows_no_gymnasium_and_no_torch(room):
    code = (
        f"import sys, types, pathlib; package = types.ModuleType('edpbrl_gym'); "
        f"package.__path__ = [{str(PACKAGE)!r}]; sys.modules['edpbrl_gym'] = package; "
        f"import edpbrl_gym.{room}; "
        "print(sorted({'gymnasium', 'torch', 'pandas', 'cvxpy', 'matplotlib'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["agents", "envs"])
def test_root_folders_are_linked_into_the_package(name):
    link = PACKAGE / name
    assert link.is_symlink()
    assert os.readlink(link) == f"../{name}"
    assert not (ROOT / name).is_symlink()


def test_no_module_is_imported_by_its_root_name():
    for path in [*modules(), *(ROOT / "examples").glob("*.py"), *(ROOT / "tests").glob("*.py")]:
        roots = {name.split(".")[0] for name in top_level_imports(path, everywhere=True)}
        assert not roots & {"agents", "envs"}, f"{path}: import edpbrl_gym.agents / edpbrl_gym.envs instead"


def test_no_test_imports_from_another_test():
    for path in (ROOT / "tests").rglob("test_*.py"):
        names = top_level_imports(path, everywhere=True)
        others = [name for name in names if name.startswith("tests.") and name.split(".")[-1].startswith("test_")]
        assert not others, f"{path.relative_to(ROOT)} imports {others}: helpers live in tests/helpers"


# who writes files without `_files.replacing` or `write_atomically`, and why that is right
OWN_WRITERS = {
    "_files": "is where files are replaced",
    "session/journal": "grows line by line",
    "_places": "opens the lock of a folder",
    "study/web/admin": "draws figures into memory",
}
WRITING = {"write_text", "write_bytes", "savefig", "to_csv", "savez", "savez_compressed", "save_file", "copyfile",
           "save_pretrained", "write_table", "rename", "replace", "mkstemp", "mkdtemp", "touch"}  # fmt: skip
ON_MODULES = {"rename", "replace"}  # str.replace is no writer
WHOLE = {"replacing", "replacing_folder", "write_atomically"}


def bare_writes(tree: ast.Module) -> list[int]:
    """Lines that write a file outside of what puts files in their places whole."""

    def name_of(node: ast.expr) -> str:
        return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")

    def writes(call: ast.Call) -> bool:
        name = name_of(call.func)
        if name == "open" and isinstance(call.func, ast.Name):
            modes = [arg.value for arg in call.args[1:2] if isinstance(arg, ast.Constant)]
            return bool(modes) and any(letter in modes[0] for letter in "wax+")
        if name in ON_MODULES:
            return isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == "os"
        return name in WRITING

    # functions that are handed to `write_atomically` by name
    handed = {
        arg.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and name_of(node.func) == "write_atomically"
        for arg in node.args
        if isinstance(arg, ast.Name)
    }
    found: list[int] = []

    def visit(node: ast.AST, inside: bool) -> None:
        if isinstance(node, ast.With):
            inside = inside or any(
                isinstance(item.context_expr, ast.Call) and name_of(item.context_expr.func) in WHOLE
                for item in node.items
            )
        elif isinstance(node, ast.FunctionDef):
            inside = inside or node.name in handed
        elif isinstance(node, ast.Call):
            if not inside and writes(node):
                found.append(node.lineno)
            inside = inside or name_of(node.func) == "write_atomically"
        for child in ast.iter_child_nodes(node):
            visit(child, inside)

    visit(tree, False)
    return found


def test_every_writer_replaces_files_whole():
    """So that links stay links, devices and pipes are refused, kills leave no half files and errors name the file."""
    bare = {}
    for path in modules():
        lines = bare_writes(ast.parse(path.read_text()))
        name = str(path.relative_to(ROOT)).removeprefix("edpbrl_gym/").removesuffix(".py")
        if lines:
            bare[name] = lines
    assert {name: lines for name, lines in bare.items() if name not in OWN_WRITERS} == {}
    assert set(bare) == set(OWN_WRITERS), "a module of the list writes nothing any more: take it out"
