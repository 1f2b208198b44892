"""The environment of the peers: `python benchmarks/peers.py` makes it in benchmarks/.venv, or does nothing.

The benchmark and the tests in interop/ use it. The project is in it too, so that it meets them there.
"""

import subprocess
import venv
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
ENVIRONMENT = HERE / ".venv"
PYTHON = ENVIRONMENT / "bin" / "python"
REQUIREMENTS, CONSTRAINTS = HERE / "requirements-peers.txt", ROOT / "constraints.txt"


def install_peers() -> None:
    """Make the environment, and make it anew when what it is to hold has changed."""
    installed = ENVIRONMENT / "installed.txt"
    wanted = "".join(path.read_text() for path in (REQUIREMENTS, CONSTRAINTS, ROOT / "pyproject.toml"))
    if installed.exists() and installed.read_text() == wanted:
        return
    if not PYTHON.exists():
        venv.create(ENVIRONMENT, with_pip=True)
    pip = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-r", REQUIREMENTS, "-c", CONSTRAINTS, "-e", ROOT], check=True)
    installed.write_text(wanted)


if __name__ == "__main__":
    install_peers()
