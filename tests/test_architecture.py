"""Imports go one way, and what decides is pure: read from the source, function bodies included."""

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = [
    {"cluster"},
    {"workload", "metrics"},
    {"planner"},
    {"scenario"},
    {"compute"},
    {"sim", "actors"},
    {"baton"},
    {"cli"},
]
"""From the bottom up. A package imports from itself and from below: `sim` and `actors` never from each other."""
PACKAGES = set().union(*LAYERS)
DATA = {"configs"}
PURE = ["cluster", "planner"]
ALSO = {"predictors": {"numpy", "statsmodels"}}
"""What a module of the pure packages may import beside the standard library: it computes with it, and that is all."""
IMPURE = {
    "asyncio", "concurrent", "contextlib", "datetime", "glob", "io", "logging", "multiprocessing", "os", "pathlib",
    "secrets", "select", "shutil", "signal", "socket", "subprocess", "sys", "tempfile", "threading", "time", "uuid",
}  # fmt: skip
IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "breakpoint", "hash", "id", "__import__"}


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """(module, name) of every import; the name is empty where the whole module is taken."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            yield from ((node.module or "", alias.name) for alias in node.names)


def test_every_package_has_its_layer():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    assert {name.split(".")[0] for name in listed} == PACKAGES | DATA
    assert all(modules(package) for package in PACKAGES)


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_imports_go_down(package):
    layer = next(index for index, packages in enumerate(LAYERS) if package in packages)
    allowed = {package}.union(*LAYERS[:layer]) | (DATA if package == "scenario" else set())
    wrong = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in modules(package)
        for module, _ in imports(path)
        if module.split(".")[0] in (PACKAGES | DATA) - allowed
    ]
    assert wrong == []


@pytest.mark.parametrize("path", [path for package in PURE for path in modules(package)], ids=lambda path: path.stem)
def test_what_decides_is_pure(path):
    """Standard library and ALSO; no clock, no I/O, no threads, and no randomness but from a seeded generator handed in."""
    for module, name in imports(path):
        top = module.split(".")[0]
        assert top in PACKAGES | ALSO.get(path.stem, set()) | sys.stdlib_module_names, f"imports {module}"
        assert top not in IMPURE, f"imports {module}"
        assert top != "random" or name == "Random", f"imports {module}.{name}, which shares one generator"
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    for call in calls:
        name = getattr(call.func, "id", "")
        assert name not in IMPURE_CALLS, f"calls {name} in line {call.lineno}"
        assert name != "Random" or call.args, f"draws a seed from the system in line {call.lineno}"


def test_only_studies_and_actors_compute_for_real():
    """Simulating must not load torch."""
    users = {path.relative_to(ROOT).parent.as_posix() for package in PACKAGES for path in modules(package)
             if any(module.split(".")[0] == "compute" for module, _ in imports(path))}  # fmt: skip
    assert users <= {"compute", "sim/studies", "actors"}


def test_nothing_below_the_drivers_knows_ray_or_torch():
    for package in set().union(*LAYERS[:4]):
        tops = {module.split(".")[0] for path in modules(package) for module, _ in imports(path)}
        assert not tops & {"ray", "torch"}, package
