"""Compile the simulator on first use, into the user's cache."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import mmap
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from oomtune.errors import SimulatorUnavailable

SOURCE = Path(__file__).with_name("source")
LIBRARY = "liboomtune_simulator.so"
HOOKS = "liboomtune_hooks.so"
# The names under which TensorFlow opens the CUDA libraries.
SONAMES = (
    "libcuda.so.1", "libcudart.so.12", "libcublas.so.12", "libcublasLt.so.12", "libcufft.so.11", "libcusolver.so.11",
    "libcusparse.so.12", "libcudnn.so.9", "libcupti.so.12", "libnccl.so.2", "libnvidia-ml.so.1",
)  # fmt: skip
# The C++ functions of TensorFlow that hooks.c wraps or calls.
_HOOKED = (
    b"_ZN3tsl14AllocatorRetry11AllocateRawESt8functionIFPvmmbEEimm",
    b"_ZN3tsl12BFCAllocator19AllocateRawInternalEmmbm",
    b"_ZN10tensorflow15OpKernelContext13forward_inputEiiNS_8DataTypeERKNS_11TensorShapeENS_10MemoryTypeERKN3tsl19"
    b"AllocatorAttributesE",
    b"_ZNK10tensorflow6Tensor4dataEv",
    b"_ZNK10tensorflow6Tensor10TotalBytesEv",
)
# What a function returns that the simulator does not have: its library's "not supported".
_NOT_SUPPORTED = {
    "cublas": 15, "cudnn": 3000, "cufft": 16, "cusolver": 9, "cusparse": 10, "cupti": 27, "cuda": 801, "cu": 801,
    "nccl": 3, "nvml": 3,
}  # fmt: skip
# TensorFlow looks functions up by name, so its libraries hold every name that it may call as a string: the framework
# all but cuSolver's, which are in a library of over 1 GB.
_FRAMEWORK = "libtensorflow_framework.so.2"
_BEGINNINGS = (b"\0cu", b"\0nccl", b"\0nvml")
_BEGINNINGS_ELSEWHERE = (b"\0cusolver",)
_FUNCTION = re.compile(rb"\0((?:cu(?:blas|dnn|fft|solver|sparse|pti|da)?|nccl|nvml)[A-Z]\w*)\0")
_FLAGS = ("-std=gnu11", "-O1", "-fPIC", "-fvisibility=hidden")
_TIMEOUT_S = 120


@dataclass(frozen=True, slots=True)
class Simulator:
    """A compiled simulator: the folder of its libraries. Hooks are left out if TensorFlow lacks what they wrap."""

    folder: Path

    @property
    def has_hooks(self) -> bool:
        return (self.folder / HOOKS).is_file()


def build_simulator(notice: Callable[[str], None]) -> Simulator:
    """Return the compiled simulator, compiling it first if this machine has none yet.

    Raises `SimulatorUnavailable` with the reason if this machine can't build or load it.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise SimulatorUnavailable(
            f"simulated cards need Linux on x86-64; this machine is {platform.system()} on {platform.machine()}"
        )
    libraries = _tensorflow_libraries()
    compiler = _compiler()
    folder = _cache() / _key(compiler, libraries)
    if not folder.is_dir():
        notice("compiling the simulated card; this takes a few seconds, once")
        _build(folder, compiler, libraries)
    simulator = Simulator(folder)
    if not simulator.has_hooks:
        notice("this TensorFlow has changed inside: out-of-memory trials on a simulated card take 10 s longer")
    return simulator


def _tensorflow_libraries() -> list[Path]:
    spec = importlib.util.find_spec("tensorflow")
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    libraries = [path for folder in folders for path in sorted(Path(folder).glob("libtensorflow_*.so.2"))]
    if not libraries:
        raise SimulatorUnavailable("TensorFlow's libraries are not installed", hint="pip install tensorflow")
    return libraries


def _compiler() -> list[str]:
    for name in ("cc", "gcc", "clang"):
        path = shutil.which(name)
        if path is not None:
            return [path]
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc"]
    raise SimulatorUnavailable("no C compiler was found", hint="install one, or: pip install 'oomtune[simulator]'")


def _cache() -> Path:
    return Path(platformdirs.user_cache_dir("oomtune")).expanduser() / "simulator"


def _key(compiler: list[str], libraries: Iterable[Path]) -> str:
    """Identify a build by its sources, its compiler and the TensorFlow that it is for."""
    states = [(path.name, (state := path.stat()).st_size, state.st_mtime_ns) for path in libraries]
    parts = [repr((SONAMES, _FLAGS, compiler, states)).encode(), _run([*compiler, "--version"]).encode()]
    parts += [path.name.encode() + path.read_bytes() for path in (*sorted(SOURCE.iterdir()), Path(__file__))]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def _build(folder: Path, compiler: list[str], libraries: Iterable[Path]) -> None:
    """Compile in a folder of our own and rename it, so that nobody ever uses half a build."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".build-", ignore_cleanup_errors=True) as work:
            result = Path(work, "result")
            result.mkdir()
            _compile(Path(work), result, compiler, libraries)
            with contextlib.suppress(FileExistsError):
                result.rename(folder)
    except OSError as error:
        if folder.is_dir():
            return  # another process was quicker, with the same result
        raise SimulatorUnavailable(
            f"{folder.parent} can't be written: {error.strerror}",
            hint="free disk space, or set XDG_CACHE_HOME to a folder that can be written",
        ) from None


def _compile(work: Path, result: Path, compiler: list[str], libraries: Iterable[Path]) -> None:
    functions, has_hooked = _read_names(libraries)
    if "cuInit" not in functions:
        raise SimulatorUnavailable("the installed TensorFlow was built without CUDA", hint="pip install tensorflow")
    missing = work / "missing.c"
    missing.write_text(_missing_functions(functions))
    sources = [*(path for path in sorted(SOURCE.glob("*.c")) if path.stem != "hooks"), missing]
    shared = [*compiler, *_FLAGS, "-shared"]
    include = ["-I", str(SOURCE)]
    # Without -Bsymbolic our calls would reach the functions of the same names that TensorFlow itself exports.
    links = ["-Wl,-Bsymbolic", f"-Wl,-soname,{LIBRARY}", "-lpthread", "-ldl"]
    _run([*shared, *include, "-o", str(result / LIBRARY), *map(str, sources), *links])
    if has_hooked:
        _run([*shared, "-o", str(result / HOOKS), str(SOURCE / "hooks.c"), "-ldl"])
    empty = work / "empty.c"
    empty.write_text("typedef int nothing;\n")
    for soname in SONAMES:
        links = [f"-Wl,-soname,{soname}", "-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN"]
        _run([*shared, "-o", str(result / soname), str(empty), *links, str(result / LIBRARY)])


def _read_names(libraries: Iterable[Path]) -> tuple[list[str], bool]:
    """Return the CUDA functions that TensorFlow may call, and whether it has all functions to hook."""
    functions: set[str] = set()
    has_hooked = False
    for path in libraries:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if path.name == _FRAMEWORK:
                functions |= set(_function_names(data, _BEGINNINGS))
                has_hooked = all(data.find(b"\0" + name + b"\0") >= 0 for name in _HOOKED)
            else:
                functions |= set(_function_names(data, _BEGINNINGS_ELSEWHERE))
    return sorted(functions), has_hooked


def _function_names(data: mmap.mmap, beginnings: Iterable[bytes]) -> Iterator[str]:
    """Yield the names of CUDA functions among the strings. `find` is ten times faster here than a regex alone."""
    for beginning in beginnings:
        position = data.find(beginning)
        while position >= 0:
            match = _FUNCTION.match(data, position)
            if match:
                yield match[1].decode()
            position = data.find(beginning, position + 1)


def _missing_functions(functions: Iterable[str]) -> str:
    """Write a weak definition of every function; the linker keeps it only if the simulator has no real one."""
    lines = ['#include "simulator.h"', "#define MISSING(name, code) \\"]
    lines.append("    __attribute__((weak)) EXPORT long name(void) { report_unknown(#name); return code; }")
    for name in functions:
        prefix = max((prefix for prefix in _NOT_SUPPORTED if name.startswith(prefix)), key=len)
        lines.append(f"MISSING({name}, {_NOT_SUPPORTED[prefix]})")
    return "\n".join(lines) + "\n"


def _run(command: list[str]) -> str:
    try:
        ran = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SimulatorUnavailable(f"the C compiler {command[0]} can't be run: {error}") from None
    if ran.returncode != 0:
        lines = ran.stderr.strip().splitlines()
        reason = next((line for line in lines if "error" in line), lines[-1] if lines else f"exit {ran.returncode}")
        raise SimulatorUnavailable(
            f"the C compiler {command[0]} failed: {reason}", hint="put another one, named cc, first on the PATH"
        )
    return ran.stdout
