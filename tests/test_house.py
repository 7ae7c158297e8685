"""The house keeps its shape: who may import whom, and nothing heavy before it is needed."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from oomtune import errors
from tests.support.cli import ROOT

PACKAGE = ROOT / "oomtune"
MODULES = {
    ".".join(("oomtune", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
}

# A module's imports of ours must all begin with one of these. The longest prefix that matches a module is its row.
ENGINE = (
    "oomtune.commands",
    "oomtune.devices",
    "oomtune.diagnosis",
    "oomtune.domain",
    "oomtune.errors",
    "oomtune.search",
    "oomtune.session",
    "oomtune.spec",
    "oomtune.storage",
    "oomtune.trials",
    "oomtune.units",
)
MAY_IMPORT = {
    "oomtune.domain": ("oomtune.domain", "oomtune.units"),
    "oomtune.errors": (),
    "oomtune.units": (),
    "oomtune.spec": ("oomtune.domain", "oomtune.errors", "oomtune.spec", "oomtune.units"),
    "oomtune.search": ("oomtune.domain", "oomtune.search"),
    "oomtune.diagnosis": ("oomtune.diagnosis", "oomtune.domain", "oomtune.units"),
    "oomtune.trials": (
        "oomtune.diagnosis",
        "oomtune.domain",
        "oomtune.errors",
        "oomtune.search.climb",
        "oomtune.trials",
        "oomtune.units",
    ),
    "oomtune.devices": (
        "oomtune.devices",
        "oomtune.domain",
        "oomtune.errors",
        "oomtune.trials.worker_host",
        "oomtune.units",
    ),
    "oomtune.storage": (
        "oomtune.domain",
        "oomtune.errors",
        "oomtune.spec.files",
        "oomtune.spec.yaml_text",
        "oomtune.storage",
        "oomtune.units",
    ),
    "oomtune.session": (
        "oomtune.domain",
        "oomtune.search",
        "oomtune.trials.runner",
        "oomtune.units",
    ),
    "oomtune.simulator": ("oomtune.errors", "oomtune.simulator"),
    "oomtune.keras": ("oomtune.errors", "oomtune.keras", "oomtune.storage.tuned", "oomtune.units"),
    "oomtune.worker": (
        "oomtune.diagnosis",
        "oomtune.domain",
        "oomtune.errors",
        "oomtune.keras",
        "oomtune.search.climb",
        "oomtune.spec.files",
        "oomtune.spec.saved_config",
        "oomtune.spec.script_source",
        "oomtune.units",
        "oomtune.worker",
    ),
    "oomtune.worker.build": (
        "oomtune.domain",
        "oomtune.errors",
        "oomtune.keras",
        "oomtune.spec.files",
        "oomtune.spec.saved_config",
        "oomtune.worker.build",
        "oomtune.worker.nesting",
    ),
    "oomtune.worker.data": (
        "oomtune.domain",
        "oomtune.errors",
        "oomtune.keras",
        "oomtune.spec.files",
        "oomtune.worker.build.compiling",
        "oomtune.worker.build.user_code",
        "oomtune.worker.data",
        "oomtune.worker.nesting",
        "oomtune.worker.process.exceptions",
    ),
    "oomtune.worker.nesting": (),
    "oomtune.worker.process.lifeline": (),
    "oomtune.worker.process.zygote": ("oomtune.worker.process", "oomtune.worker.sandbox.landlock"),
    "oomtune.worker.sandbox": ("oomtune.errors", "oomtune.keras.private_tensorflow", "oomtune.worker.sandbox"),
    "oomtune.worker.watch": (
        "oomtune.domain",
        "oomtune.errors",
        "oomtune.keras.private_tensorflow",
        "oomtune.units",
        "oomtune.worker.process.device",
        "oomtune.worker.process.progress",
        "oomtune.worker.watch",
    ),
    "oomtune.commands": ENGINE,
    "oomtune.commands.report": (*ENGINE, "oomtune.report"),
    "oomtune.report": (
        "oomtune.diagnosis",
        "oomtune.domain",
        "oomtune.errors",
        "oomtune.report",
        "oomtune.search",
        "oomtune.units",
    ),
    "oomtune.cli": (*ENGINE, "oomtune.cli", "oomtune.report"),
}
HEAVY = {"tensorflow", "keras", "numpy"}
PURE = (
    "oomtune.search",
    "oomtune.trials.outcome",
    "oomtune.diagnosis",
    "oomtune.commands.comparison",
    "oomtune.report.answer",
    "oomtune.report.csv",
    "oomtune.report.explanation",
    "oomtune.report.figures",
    "oomtune.report.json_document",
    "oomtune.report.junit",
    "oomtune.report.markdown",
    "oomtune.report.terminal",
    "oomtune.report.trial_rows",
)
IMPURE = {"time", "os", "subprocess", "socket", "threading", "tempfile", "pathlib", "datetime", "random", "shutil"}


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("module", sorted(MODULES))
def test_each_module_imports_only_what_its_row_allows(module: str) -> None:
    rows = [row for row in MAY_IMPORT if module == row or module.startswith(f"{row}.")]
    if not rows:
        assert module in ("oomtune", "oomtune.__main__"), f"{module} has no row in the table"
        return
    allowed = MAY_IMPORT[max(rows, key=len)]
    for name in imports(MODULES[module]):
        if name.startswith("oomtune."):
            own_version = name == "oomtune.__version__"
            assert own_version or any(name == row or name.startswith(f"{row}.") for row in allowed), name


@pytest.mark.parametrize("module", sorted(MODULES))
def test_only_the_worker_imports_tensorflow_and_nobody_imports_the_worker(module: str) -> None:
    if module.startswith("oomtune.worker"):
        return
    names = imports(MODULES[module])
    assert not any(name.startswith("oomtune.worker") for name in names)
    if not module.startswith("oomtune.keras"):  # what a training script calls
        assert not {name.partition(".")[0] for name in names} & HEAVY


@pytest.mark.parametrize("module", [module for module in sorted(MODULES) if module.startswith(PURE)])
def test_pure_modules_have_no_clock_no_files_and_no_processes(module: str) -> None:
    # A generator made with a seed gives the same each time.
    assert not {name.partition(".")[0] for name in imports(MODULES[module]) - {"random.Random"}} & IMPURE


def test_the_command_line_loads_nothing_heavy() -> None:
    code = (
        "import sys, oomtune, oomtune.cli.app; print([m for m in sys.modules if m in ('tensorflow','keras','numpy')])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_a_whole_probe_leaves_the_parent_without_tensorflow() -> None:
    code = (
        "import sys, oomtune.commands.probe, oomtune.report.terminal, oomtune.cli.screen;"
        "print([m for m in sys.modules if m in ('tensorflow','keras','numpy')])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


PRIVATE = {
    "keras.src": "oomtune.keras.private_keras",
    "tensorflow.python": "oomtune.keras.private_tensorflow",
    "typer.core": "oomtune.cli.private_typer",
    "typer._": "oomtune.cli.private_typer",
}


@pytest.mark.parametrize("module", sorted(MODULES))
def test_private_names_of_libraries_are_imported_in_one_module_each(module: str) -> None:
    for name in imports(MODULES[module]):
        for prefix, home in PRIVATE.items():
            assert not name.startswith(prefix) or module == home, name


def test_every_error_has_an_exit_code_and_stands_in_the_drawn_tree() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.OomtuneError)]
    assert {kind.exit_code for kind in kinds} == {1, 2, 3, 5, 6}
    for kind in kinds:
        assert kind.__name__ in (errors.__doc__ or "")
    assert len({kind.code for kind in kinds}) == len(kinds)


def test_no_file_is_long_and_no_function_is_longer() -> None:
    for path in MODULES.values():
        text = path.read_text()
        assert len(text.splitlines()) <= 450, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                assert (node.end_lineno or 0) - node.lineno <= 60, f"{path}: {node.name}"
