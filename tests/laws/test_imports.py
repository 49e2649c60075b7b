"""The dependency rule: core, {data, models, algorithms}, engines, run, {report, papers, federation}, api, cli."""

import ast
import subprocess
import sys
from pathlib import Path

import moonfed

ROOT = Path(moonfed.__file__).parent
GROUPS = (
    ("core",),
    ("data", "models", "algorithms"),
    ("engines",),
    ("training",),
    ("storage",),
    ("experiments",),
    ("report", "papers", "federation", "bench"),
    ("api",),
    ("cli",),
)
MAY_IMPORT = {
    room: {below for group in GROUPS[:level] for below in group} for level, rooms in enumerate(GROUPS) for room in rooms
}
DISK_AND_CLOCK = {"time", "datetime", "os", "pathlib", "shutil", "tempfile"}


def imports(path: Path) -> set[str]:
    """Every module that a file imports, wherever in it the import stands."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            found.add(node.module or "")
            found |= {f"{node.module}.{alias.name}" for alias in node.names if node.module == "moonfed"}
    return found


def files():
    return [(path.relative_to(ROOT).parts[0], path) for path in ROOT.rglob("*.py") if path.parent != ROOT]


def test_every_arrow_points_the_right_way():
    for layer, path in files():
        used = {name.split(".")[1] for name in imports(path) if name.startswith("moonfed.")}
        wrong = used - MAY_IMPORT[layer] - {layer, "__version__"}
        assert not wrong, f"{path.relative_to(ROOT)} imports {wrong}"


MAY_TOUCH_DISK = {ROOT / "core" / "files.py", ROOT / "models" / "custom.py"}  # all writing; the user's encoder


def test_only_run_and_data_touch_disk_and_clock():
    for layer, path in files():
        if layer in ("core", "models", "algorithms", "engines") and path not in MAY_TOUCH_DISK:
            assert not imports(path) & DISK_AND_CLOCK, path


def test_transports_are_imported_where_they_belong_only():
    for layer, path in files():
        for package, home in (("flwr", "federation"), ("cryptography", "federation"), ("ray", "engines")):
            used = any(name == package or name.startswith(package + ".") for name in imports(path))
            assert not used or layer == home, path


def test_randomness_comes_from_seeds_alone():
    """No other file makes a generator or draws from a global stream."""
    for _, path in files():
        if path.name == "seeds.py":
            continue
        text = path.read_text()
        for draw in (
            "np.random.rand",
            "np.random.seed",
            "default_rng",
            "RandomState(",
            "torch.manual_seed",
            "import random",
            "torch.rand",
        ):
            assert draw not in text, f"{path.relative_to(ROOT)}: {draw}"


def test_nothing_is_unpickled_or_evaluated():
    for _, path in files():
        text = path.read_text()
        for call in ("pickle", "torch.load", "torch.save", "eval(", "exec(", "shell=True"):
            if (
                call == "pickle" and path == ROOT / "data" / "catalog" / "cifar.py"
            ):  # whose reader runs nothing: test_datasets.py
                continue
            assert call not in text.replace(".eval()", ""), f"{path.relative_to(ROOT)}: {call}"


def test_a_node_of_flower_does_not_wait_for_torch():
    """SuperLink and SuperNode are processes of their own, whose start a federation waits for."""
    words = "import moonfed.federation.flower.node_process, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", words]).returncode == 0


def test_files_stay_small():
    for _, path in files():
        assert len(path.read_text().splitlines()) <= 300, path


def test_the_arrows_inside_federation_point_the_right_way():
    """Keys and the protocol know neither side, the two sides do not know each other, and only flower knows them all."""
    everything = {"pki", "protocol", "coordinator", "site", "flower"}
    may_import = {"pki": set[str](), "protocol": set[str](), "flower": everything}
    may_import |= {side: {"pki", "protocol"} for side in ("coordinator", "site")}
    for path in (ROOT / "federation").glob("*/*.py"):
        inner = path.parent.name
        used = {name.split(".")[2] for name in imports(path) if name.startswith("moonfed.federation.")}
        wrong = used - may_import[inner] - {inner}
        assert not wrong, f"{path.relative_to(ROOT)} imports {wrong}"


def test_flower_and_the_http_parser_are_imported_in_federation_flower_only():
    for _, path in files():
        used = {name.split(".")[0] for name in imports(path)} & {"flwr", "h11", "httpx", "google"}
        assert not used or path.parent == ROOT / "federation" / "flower", f"{path.relative_to(ROOT)} imports {used}"
