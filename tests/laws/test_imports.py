"""The rules of docs/architecture.md: rooms and arrows, devices, files, transports, one of each thing."""

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import moonfed
from moonfed.training.registry import ALGORITHMS, PHASES

ROOT = Path(moonfed.__file__).parent
GROUPS = (
    ("core",),
    ("data", "models", "algorithms", "aggregators", "server_optimizers", "phases"),
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
CLOCK_AND_DISK = {"time", "datetime", "os", "pathlib", "shutil", "tempfile"}
# The one writer of files, the loader of the user's encoder, which reads one, what starts processes and pipes, and the
# compiler of kernels, which keeps them.
MAY_TOUCH_DISK = {
    "core/files.py",
    "core/regular_file.py",
    "models/custom.py",
    "engines/cpu_workers.py",
    "engines/cuda/nvrtc.py",
    "engines/ray.py",
    "engines/stopwatch.py",
}
# Files that write without core/files.py, each for a reason of its own.
WRITERS = {
    "core/files.py",
    "data/catalog/download.py",  # a stream that can be continued
    "data/catalog/package_clients.py",  # the log of another program
    "federation/flower/processes.py",  # logs of child processes
    "federation/pki/keys.py",  # private keys, created with mode 0600
}
NAMES_A_DEVICE = {"core/seeds.py"}  # a GPU has a random stream of its own, and seeds is the only source of randomness


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


def files() -> list[tuple[str, Path]]:
    return [(path.relative_to(ROOT).parts[0], path) for path in ROOT.rglob("*.py") if path.parent != ROOT]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_every_arrow_points_the_right_way_and_rooms_of_one_group_stay_apart():
    for room, path in files():
        used = {name.split(".")[1] for name in imports(path) if name.startswith("moonfed.")}
        wrong = used - MAY_IMPORT[room] - {room, "__version__"}
        assert not wrong, f"{name_of(path)} imports {wrong}"


def test_only_training_and_what_is_above_it_has_a_clock_or_a_disk():
    for room, path in files():
        if room in ("core", "models", "algorithms", "aggregators", "server_optimizers", "phases", "engines"):
            assert name_of(path) in MAY_TOUCH_DISK or not imports(path) & CLOCK_AND_DISK, path


def test_only_engines_and_data_name_a_device():
    for room, path in files():
        if room not in ("engines", "data") and name_of(path) not in NAMES_A_DEVICE:
            assert "cuda" not in path.read_text(), name_of(path)


def test_files_are_opened_for_writing_in_one_place():
    for _, path in files():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                modes = [a.value for a in node.args[:1] if isinstance(a, ast.Constant)]
                opens = node.func.attr == "open" and any(isinstance(m, str) and set(m) & set("wax+") for m in modes)
                writes = node.func.attr in ("write_text", "NamedTemporaryFile")
                assert not (opens or writes) or name_of(path) in WRITERS, f"{name_of(path)}, line {node.lineno}"


def test_there_is_one_place_for_optimisers_one_step_and_one_round_loop():
    """The yardstick of moonfed bench is torch's own SGD in a loop of its own, on purpose."""
    optimisers = {name_of(path) for _, path in files() if "torch.optim" in path.read_text()}
    assert optimisers == {"bench/eager_loop.py"}
    steps = [name_of(path) for _, path in files() if "optim.momentum *" in path.read_text()]
    assert steps == ["engines/local_optimizer.py"]
    callers = [name_of(path) for _, path in files() if "optimizer.step(" in path.read_text()]
    server = "core/algorithm.py"
    assert sorted(callers) == ["bench/eager_loop.py", server, "engines/step.py"]
    loops = [name_of(path) for _, path in files() if "runner.train(" in path.read_text()]
    assert loops == ["training/loop.py"]


def test_a_module_name_occurs_once():
    names = [path.stem for path in ROOT.rglob("*.py") if path.stem != "__init__"]
    names += [path.parent.name for path in ROOT.rglob("__init__.py") if path.parent != ROOT]
    assert {name: n for name, n in Counter(names).items() if n > 1} == {}


def test_a_method_is_one_short_file_and_no_engine_names_one():
    shelves = ("algorithms", "aggregators", "server_optimizers", "phases")
    for room, path in files():
        text = path.read_text()
        if room in shelves:
            assert len(text.splitlines()) <= 100, name_of(path)
        if room == "engines":
            assert not any(name.startswith(f"moonfed.{shelf}") for name in imports(path) for shelf in shelves), path
            named = {word.lower() for node in ast.walk(ast.parse(text)) for word in words_of(node)}
            methods = {name.replace("-", "_") for name in (*ALGORITHMS, *PHASES)}
            assert not named & methods, name_of(path)
            joined = {name for name in methods if len(name) > len("moon")}  # FedProxLocal; median is a common word
            assert not {w for w in named for name in joined - {"median", "gossip"} if name in w}, name_of(path)


def words_of(node: ast.AST) -> set[str]:
    """The words of a piece of code: a string without spaces, a name and its parts; docstrings and comments are none."""
    named = [getattr(node, key, None) for key in ("id", "attr", "arg", "name", "value")]
    texts = [text for text in named if isinstance(text, str) and " " not in text]
    return {*texts, *(word for text in texts for word in re.findall(r"[A-Z]+[a-z]*|[a-z]+", text))}


def test_files_and_functions_stay_small():
    for _, path in files():
        text = path.read_text()
        assert len(text.splitlines()) <= 300, name_of(path)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                assert lines <= 50, f"{name_of(path)}: {node.name} has {lines} lines"
    for path in Path(__file__).parents[1].rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 300, path


def test_transports_are_imported_where_they_belong_only():
    for layer, path in files():
        for package, home in (("flwr", "federation"), ("cryptography", "federation")):
            used = any(name == package or name.startswith(package + ".") for name in imports(path))
            assert not used or layer == home, path
        assert "ray" not in imports(path), path  # late, and by name:
        assert '_module("ray")' not in path.read_text() or name_of(path) == "engines/ray.py", path


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
            if call == "pickle" and name_of(path) == "data/catalog/cifar.py":  # runs nothing: test_datasets.py
                continue
            if call == "pickle" and name_of(path) == "engines/ray.py":  # what its own workers get
                continue
            assert call not in text.replace(".eval()", ""), f"{name_of(path)}: {call}"


def test_a_node_of_flower_does_not_wait_for_torch():
    """SuperLink and SuperNode are processes of their own, whose start a federation waits for."""
    words = "import moonfed.federation.flower.node_process, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", words]).returncode == 0


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
