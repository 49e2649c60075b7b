"""What site and coordinator are told when something is wrong: the truth, in a line, and no more than they may know."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from commands import moonfed, refuse
from federations import Federation
from line import Line, World
from test_certificates import day, resigned

from moonfed import __version__
from moonfed.core.errors import RunFailed, UserError
from moonfed.federation.coordinator.federation_config import FederationSettings
from moonfed.federation.coordinator.serve import serve
from moonfed.federation.flower.node_log import last_words, why_ended
from moonfed.federation.flower.processes import free_port
from moonfed.federation.pki.coordinator_folder import Home, make_home
from moonfed.federation.protocol.rejection import Refused
from moonfed.federation.protocol.request import ENROL, Ask, Note, ask_note, read_reply, reply_note
from moonfed.federation.protocol.signing import Claim, digest, sign
from moonfed.federation.site.diagnosis import trouble_at
from moonfed.federation.site.redaction import for_others
from moonfed.federation.site.trainer import Site


@contextmanager
def answering(certificate: Path, key: Path, host: str = "127.0.0.1") -> Iterator[str]:
    """Answer TLS on a port of this machine; yields the address."""
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trust.load_cert_chain(certificate, key)
    with socket.create_server((host, 0)) as listener:

        def serve_one() -> None:
            try:
                with listener.accept()[0] as line, trust.wrap_socket(line, server_side=True) as secure:
                    secure.recv(1)
            except OSError:
                pass  # it was not trusted

        thread = threading.Thread(target=serve_one, daemon=True)
        thread.start()
        yield f"{host}:{listener.getsockname()[1]}"
        thread.join(5)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return make_home(tmp_path / "coordinator", "127.0.0.1", 9443, 2)


def test_a_coordinator_that_answers_and_is_trusted_is_no_trouble(home: Home):
    with answering(home.files.certificate, home.files.key) as address:
        assert trouble_at(address, home.files.authority) is None


def test_a_site_says_that_nobody_answers(home: Home):
    port = free_port()
    said = trouble_at(f"127.0.0.1:{port}", home.files.authority)
    assert said is not None
    assert said.startswith(f"the coordinator at 127.0.0.1:{port} does not answer (Connection refused): is it running")
    said = trouble_at("no-such-machine.invalid:9443", home.files.authority)
    assert said is not None
    assert "does not answer (no machine of this name)" in said


def test_a_site_says_that_a_certificate_has_expired(home: Home, tmp_path: Path):
    old = resigned(home.files, tmp_path, day(-30), day(-1))
    with answering(old.certificate, home.files.key) as address:
        said = trouble_at(address, home.files.authority)
    assert said == f"the certificate of the coordinator at {address} has expired: the coordinator has to renew it"


def test_a_site_says_that_a_certificate_is_not_its_authoritys(home: Home, tmp_path: Path):
    other = make_home(tmp_path / "other", "127.0.0.1", 9443, 2)
    with answering(other.files.certificate, other.files.key) as address:
        said = trouble_at(address, home.files.authority)
    assert said is not None
    assert "is not signed by the authority of this site's invitation" in said


def test_a_site_says_that_a_certificate_is_for_another_name(home: Home):
    with answering(home.files.certificate, home.files.key, "127.0.1.1") as address:
        said = trouble_at(address, home.files.authority)
    assert said is not None
    assert f"the certificate of the coordinator at {address} is for another name" in said


def test_a_site_says_that_what_answers_speaks_no_tls(home: Home):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve_one() -> None:
            with listener.accept()[0] as line:
                line.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10)

        threading.Thread(target=serve_one, daemon=True).start()
        said = trouble_at(f"127.0.0.1:{listener.getsockname()[1]}", home.files.authority)
    assert said is not None
    assert "is no coordinator: it does not speak TLS" in said


NODE = """\x1b[92mINFO \x1b[0m:      Starting Flower SuperNode
\x1b[91mERROR \x1b[0m:     Exit Code: 305
Failed to initialize the connection to the SuperLink.
{}
The SuperNode could not establish a connection to the SuperLink.

INFO:     Shutting down
INFO:     Finished server process [4685]
""".format


def test_a_node_that_is_kept_out_is_a_site_that_is_not_on_the_list():
    lines = NODE("[code: 2004] Failed to activate SuperNode.").splitlines()
    assert why_ended(lines, "10.77.0.1:9443") == (
        "the coordinator at 10.77.0.1:9443 does not let this site in: is its key on the allow-list? "
        "(moonfed federation admit)"
    )


def test_of_a_log_the_errors_are_told_without_colours_and_in_bounds():
    said = last_words(NODE("something else").splitlines())
    assert said == "ERROR : Exit Code: 305 / Failed to initialize the connection to the SuperLink. / something else"
    assert last_words(["one", "two \x07", "", "three", "four"]) == "two ? / three / four"
    assert last_words([]) == "it said nothing"
    assert len(last_words(["x" * 10_000])) == 400


def heard(world: World) -> tuple[Line, dict[str, list[str]]]:
    """Sites in this process, and what each of them says to its own user."""
    line, said = Line(world.places), {name: [] for name in world.places}
    line.sites = {name: Site(place, said[name].append) for name, place in world.places.items()}
    return line, said


def test_a_site_whose_rows_are_out_of_proportion_is_told(tmp_path: Path):
    world = World(tmp_path)
    line, said = heard(world)
    key = world.places["s1"].key()

    def boasting(site: str, asks: int, ask: Note, reply: Note) -> list[Note]:
        if site != "s1" or asks > 1:
            return [reply]
        claim, numbers, _ = read_reply(reply)
        more = dict.fromkeys(numbers, 10**9) | {"rows": 10**10}
        return [reply_note(claim, more, {}, sign(key, claim, more, {}))]

    line.fault = boasting
    with pytest.raises(RunFailed, match="s1 says that it holds 10000000000 rows"):
        world.federate(line)
    assert said["s1"][-1].startswith("the coordinator does not take this site: its 10000000000 rows are over 100 times")
    assert not any("does not take" in text for text in said["s0"] + said["s2"])


def test_a_site_with_fewer_rows_than_a_batch_is_named_and_told(tmp_path: Path):
    world = World(tmp_path)
    line, said = heard(world)
    config = world.config.model_copy(update={"train": world.config.train.model_copy(update={"batch": 600})})
    with pytest.raises(
        UserError, match=r"site s\d has \d+ rows, fewer than a batch of 600; use --batch \d+ or smaller"
    ):
        serve(config, tmp_path / "run", False, world.home, line, FederationSettings(deadline=1))  # type: ignore[call-arg]
    told = [name for name, lines in said.items() if "fewer than a batch of 600" in lines[-1]]
    assert len(told) == 1


def test_a_site_whose_classes_do_not_add_up_is_told_and_the_coordinator_does_not_say_that_it_was_late(tmp_path: Path):
    world = World(tmp_path)
    line, said = heard(world)
    key = world.places["s2"].key()

    def short(site: str, asks: int, ask: Note, reply: Note) -> list[Note]:
        if site != "s2" or asks > 1:
            return [reply]
        claim, numbers, _ = read_reply(reply)
        less = {name: n for name, n in numbers.items() if name != "class9"}
        return [reply_note(claim, less, {}, sign(key, claim, less, {}))]

    line.fault = short
    with pytest.raises(RunFailed, match="s2 cannot take part: the 10 classes do not add up to the rows") as failure:
        world.federate(line)
    assert "did not enrol within" not in str(failure.value)
    assert "what it said of its rows cannot be: the 10 classes" in said["s2"][-1]


def test_a_site_that_is_away_is_not_said_to_be_refused(tmp_path: Path):
    world = World(tmp_path)
    line, _ = heard(world)
    line.words.pop("s1")
    with pytest.raises(RunFailed, match=r"^s1 did not enrol within 0.5 s; start them with moonfed site join"):
        world.federate(line)


def test_another_version_is_named_at_both_ends(tmp_path: Path):
    world = World(tmp_path)
    line, said = heard(world)
    claim = Claim("0" * 16, 0, "0" * 32, digest({}), "s0")
    ask = ask_note(world.home.key(), Ask(ENROL, claim, version="99.0"), {})
    reply = line.sites["s0"].answer(ask)
    for text in (said["s0"][-1], str(reply.words["refused"])):
        assert f"the coordinator runs moonfed 99.0, this site {__version__}; install the same" in text


def test_a_damaged_memory_is_advised_on_and_no_path_leaves_the_site(tmp_path: Path):
    world = World(tmp_path)
    line, said = heard(world)

    def damaging(site: str, asks: int, ask: Note, reply: Note) -> list[Note]:
        if site == "s1" and asks == 2:
            (slots,) = (tmp_path / "s1" / "memory").rglob("slots-1.safetensors")
            slots.write_bytes(slots.read_bytes()[:-8] + b"damaged!")
        return [reply]

    line.fault = damaging
    assert [row["cohort"] for row in world.federate(line)] == [[0, 1, 2], [0, 2], [0, 2]]
    assert any(str(tmp_path) in text and "is damaged" in text for text in said["s1"])
    refusals = world.refusals()
    assert "a new run (federation start with another --out) takes it back" in refusals
    assert str(tmp_path) not in refusals
    assert "/" not in refusals


def test_what_leaves_a_site_is_bounded_and_names_no_file(tmp_path: Path):
    place = tmp_path / "my site"
    for error in (
        UserError(f"{place / 'rows.csv'} cannot be read: permission denied"),
        UserError(r"C:\Users\north\rows.csv is empty"),
        OSError(2, "No such file or directory", str(place / "x")),
        Refused("no memory", f"{place} is gone " + "x" * 5_000),
        RuntimeError(f"CUDA error at {place}"),
    ):
        said = for_others(error, [place])
        assert len(said) <= 300
        assert "my site" not in said
        assert "/" not in said
        assert "\\" not in said
    assert for_others(UserError("this site is share 5 of a split into 3")) == "this site is share 5 of a split into 3"


def test_a_damaged_checkpoint_is_advised_on(tmp_path: Path):
    world = World(tmp_path)
    world.federate(Line(world.places), rounds=1)
    (state,) = (tmp_path / "run" / "checkpoint").glob("state-1.safetensors")
    state.write_bytes(state.read_bytes()[:-8] + b"damaged!")
    with pytest.raises(UserError, match=r"is damaged: .*; use --out for another folder"):
        world.federate(Line(world.places), resume=True)


@pytest.mark.parametrize("count", ["1", "3"])
def test_another_number_of_sites_is_refused_in_a_line(tmp_path: Path, count: str):
    from moonfed.federation.flower.launcher import _make  # pyright: ignore[reportPrivateUsage]

    (tmp_path / "run").mkdir()
    _make(tmp_path / "run" / "federation", ["site-0", "site-1"], 9443, 1)
    answer = moonfed("federate", "--sites", count, "--resume", "--out", tmp_path / "run")
    assert answer.code == 2
    assert answer.err == (
        f"moonfed: {tmp_path / 'run'} was made with 2 sites, got --sites {count}; use --sites 2, "
        "or --out for another folder\n"
    )


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--deadline", "0"), "--deadline: input should be greater than 0, got 0"),
        (("--quorum", "1.5"), "--quorum: input should be less than or equal to 1, got 1.5"),
        (("--rows-limit", "many"), "--rows-limit: input should be a valid number"),
        (("--norm-limit", "nan"), "--norm-limit: input should be a finite number, got nan"),
    ],
)
def test_limits_out_of_bounds_are_refused_by_their_flag(place: Path, words: tuple[str, str], line: str):
    assert line in refuse(place, "federate", *words)


def test_a_site_that_is_not_on_the_list_is_told_so_by_its_own_command(tmp_path: Path):
    made = Federation(tmp_path, sites=2, admitted=1)
    try:
        made.start().await_word("listening", 60)
        made.join("site-1").await_word("does not let this site in: is its key on the allow-list?", 90)
    finally:
        made.end()
