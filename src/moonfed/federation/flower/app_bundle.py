"""The app folder for Flower's own commands (flwr run): a project file and a module that names the two apps."""

from pathlib import Path

from moonfed.core.files import make_folder, write_bytes

PROJECT = """# What flwr run sends to SuperLink; the code is the moonfed that is installed on each machine.
[project]
name = "moonfed-federation"
version = "1.0.0"
description = "moonfed over Flower"
license = "Apache-2.0"
dependencies = ["flwr>=1.41,<1.42"]

[tool.flwr.app]
publisher = "moonfed"

[tool.flwr.app.components]
serverapp = "moonfed_app:server"
clientapp = "moonfed_app:site"

[tool.flwr.app.config]
home = ""
out = ""
config = ""
resume = false
"""
MODULE = '''"""The ServerApp and the ClientApp of moonfed, where Flower looks for them."""

from moonfed.federation.flower.apps import server, site

__all__ = ["server", "site"]
'''


def write_app_bundle(folder: Path) -> None:
    """Write the folder that flwr run takes."""
    make_folder(folder)
    write_bytes(folder / "pyproject.toml", PROJECT.encode())
    write_bytes(folder / "moonfed_app.py", MODULE.encode())
