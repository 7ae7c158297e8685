"""The house keeps its shape: who may import whom, and nothing heavy before it is needed."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from oomtune import errors
from tests.conftest import ROOT

PACKAGE = ROOT / "oomtune"
MODULES = {
    ".".join(("oomtune", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
}

# A module's imports of ours must all begin with one of these. The longest prefix that matches a module is its row.
MAY_IMPORT = {
    "oomtune.domain": ("oomtune.domain",),
    "oomtune.errors": (),
    "oomtune.units": (),
    "oomtune.spec_lines": (),
    "oomtune.calibration": ("oomtune.domain",),
    "oomtune.search": ("oomtune.domain", "oomtune.calibration", "oomtune.search"),
    "oomtune.diagnosis": ("oomtune.diagnosis", "oomtune.spec_lines", "oomtune.units"),
    "oomtune.diagnosis.remedies": ("oomtune.diagnosis", "oomtune.domain", "oomtune.units"),
    "oomtune.trials.fragmentation": ("oomtune.domain", "oomtune.units"),
    "oomtune.trials.leaks": ("oomtune.domain", "oomtune.units"),
    "oomtune.trials.outcome": (
        "oomtune.diagnosis",
        "oomtune.domain",
        "oomtune.units",
        "oomtune.trials.fragmentation",
        "oomtune.trials.leaks",
    ),
    "oomtune.trials": ("oomtune.domain", "oomtune.errors", "oomtune.calibration", "oomtune.trials"),
    "oomtune.stepping": (),
    "oomtune.script_options": (),
    "oomtune.starter": ("oomtune.domain", "oomtune.script_options"),
    "oomtune.fence": (),
    "oomtune.files": (),
    "oomtune.bucketing": (),
    "oomtune.cards": (),
    "oomtune.optimizing": ("oomtune.errors",),
    "oomtune.saved_inputs": (),
    "oomtune.structures": (),
    "oomtune.remat": ("oomtune.errors", "oomtune.remat"),
    "oomtune.scanning": ("oomtune.domain", "oomtune.errors", "oomtune.observer", "oomtune.trials"),
    "oomtune.worker": (
        "oomtune.domain",
        "oomtune.errors",
        "oomtune.bucketing",
        "oomtune.calibration",
        "oomtune.fence",
        "oomtune.cards",
        "oomtune.diagnosis",
        "oomtune.files",
        "oomtune.optimizing",
        "oomtune.remat",
        "oomtune.saved_inputs",
        "oomtune.script_options",
        "oomtune.stepping",
        "oomtune.structures",
        "oomtune.units",
        "oomtune.worker",
    ),
    "oomtune.devices": ("oomtune.domain", "oomtune.errors", "oomtune.units", "oomtune.devices", "oomtune.trials"),
    "oomtune.spec": (
        "oomtune.domain",
        "oomtune.errors",
        "oomtune.files",
        "oomtune.saved_inputs",
        "oomtune.units",
        "oomtune.spec",
    ),
    "oomtune.kept": ("oomtune.domain",),
    "oomtune.ledger": ("oomtune.domain", "oomtune.errors", "oomtune.kept", "oomtune.units"),
    "oomtune.kept_explanations": ("oomtune.domain", "oomtune.kept", "oomtune.ledger"),
    "oomtune.archive": (
        "oomtune.errors",
        "oomtune.files",
        "oomtune.kept",
        "oomtune.kept_explanations",
        "oomtune.ledger",
    ),
    "oomtune.reporting": (
        "oomtune.archive",
        "oomtune.domain",
        "oomtune.errors",
        "oomtune.files",
        "oomtune.kept",
        "oomtune.kept_explanations",
        "oomtune.report",
        "oomtune.session",
        "oomtune.tuned",
        "oomtune.writing",
    ),
    "oomtune.writing": ("oomtune.errors", "oomtune.files"),
    "oomtune.tuned": ("oomtune.domain", "oomtune.errors", "oomtune.spec.text", "oomtune.writing"),
    "oomtune.observer": ("oomtune.domain",),
    "oomtune.session": (
        "oomtune.domain",
        "oomtune.observer",
        "oomtune.search",
        "oomtune.trials.runner",
        "oomtune.units",
    ),
    "oomtune.preparing": (
        "oomtune.devices",
        "oomtune.domain",
        "oomtune.errors",
        "oomtune.fence",
        "oomtune.files",
        "oomtune.ledger",
        "oomtune.observer",
        "oomtune.scanning",
        "oomtune.spec",
        "oomtune.trials.host",
    ),
    "oomtune.checking": (
        "oomtune.api",
        "oomtune.checking",
        "oomtune.devices",
        "oomtune.domain",
        "oomtune.errors",
        "oomtune.observer",
        "oomtune.preparing",
        "oomtune.session",
        "oomtune.spec",
        "oomtune.trials",
        "oomtune.tuned",
        "oomtune.units",
        "oomtune.writing",
    ),
    "oomtune.explaining": (
        "oomtune.domain",
        "oomtune.errors",
        "oomtune.explaining",
        "oomtune.kept_explanations",
        "oomtune.observer",
        "oomtune.preparing",
        "oomtune.report.advice",
        "oomtune.scanning",
        "oomtune.search",
        "oomtune.spec",
        "oomtune.trials",
        "oomtune.tuned",
        "oomtune.units",
    ),
    "oomtune.report": (
        "oomtune.diagnosis",
        "oomtune.domain",
        "oomtune.errors",
        "oomtune.report",
        "oomtune.spec_lines",
        "oomtune.units",
    ),
    # The lines that a report draws are made as the search makes its own.
    "oomtune.report.lanes": ("oomtune.domain", "oomtune.search"),
    "oomtune.keras": (
        "oomtune.bucketing",
        "oomtune.cards",
        "oomtune.errors",
        "oomtune.optimizing",
        "oomtune.remat",
        "oomtune.structures",
        "oomtune.tuned",
        "oomtune.units",
    ),
}
HEAVY = {"tensorflow", "keras", "numpy"}
PURE = (
    "oomtune.search",
    "oomtune.trials.fragmentation",
    "oomtune.trials.leaks",
    "oomtune.trials.outcome",
    "oomtune.diagnosis",
    "oomtune.calibration",
    "oomtune.report.comparing",
    "oomtune.report.endings",
    "oomtune.report.escape",
    "oomtune.report.figures",
    "oomtune.report.findings",
    "oomtune.report.junit",
    "oomtune.report.lanes",
    "oomtune.report.markdown",
    "oomtune.report.marks",
    "oomtune.report.model",
    "oomtune.report.runs",
    "oomtune.report.table",
    "oomtune.report.verdict",
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
        assert module.split(".")[1:2] in ([], ["api"], ["cli"], ["__main__"]), f"{module} has no row in the table"
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
    if not module.startswith(("oomtune.keras", "oomtune.bucketing", "oomtune.remat")):  # what a training script calls
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
        "import sys, oomtune.api, oomtune.report.terminal, oomtune.cli.screen;"
        "print([m for m in sys.modules if m in ('tensorflow','keras','numpy')])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_every_error_has_an_exit_code_and_stands_in_the_drawn_tree() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.OomtuneError)]
    assert {kind.exit_code for kind in kinds} == {1, 2, 3, 5, 6}
    for kind in kinds:
        assert kind.__name__ in (errors.__doc__ or "")
    assert len({kind.code for kind in kinds}) == len(kinds)


def test_no_file_is_long_and_no_function_is_longer() -> None:
    for path in MODULES.values():
        text = path.read_text()
        assert len(text.splitlines()) <= 300, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                assert (node.end_lineno or 0) - node.lineno <= 60, f"{path}: {node.name}"
