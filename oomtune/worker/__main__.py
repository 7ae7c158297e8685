"""`python -m oomtune.worker MODE CONTROL_FD`: started by a runner, never by hand."""

import sys
from pathlib import Path

# `-m` puts the user's folder first on the path, where a file called typing.py or keras.py would break the imports.
sys.path[:] = [entry for entry in sys.path if entry not in ("", str(Path.cwd()))]

from oomtune.worker.zygote import serve  # noqa: E402

if __name__ == "__main__":
    serve(mode=sys.argv[1], control_fd=int(sys.argv[2]))
