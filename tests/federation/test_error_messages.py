"""Error messages of sites and coordinator: one line with the cause, and nothing that others must not know."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from commands import moonfed, refuse
from federations import Federation
from in_process import InProcessTransport, Numbers, World, capture, exaggerated, log_of, lying
from test_certificates import day, resigned

from moonfed import __version__
from moonfed.core.errors import RunFailed, UserError
from moonfed.federation.coordinator.federation_config import FederationSettings
from moonfed.federation.coordinator.serve import serve
from moonfed.federation.flower.node_log import explain_node_exit, summarize_log
from moonfed.federation.flower.processes import free_port
from moonfed.federation.pki.coordinator_folder import CoordinatorFolder, make_coordinator_folder
from moonfed.federation.protocol.rejection import Rejection
from moonfed.federation.protocol.request import ENROL, Envelope, Request, request_envelope
from moonfed.federation.protocol.signing import Claim, digest
from moonfed.federation.site.diagnosis import diagnose_connection
from moonfed.federation.site.redaction import redacted_message
from moonfed.federation.site.trainer import SiteTrainer


@contextmanager
def answering(certificate: Path, key: Path, host: str = "127.0.0.1") -> Iterator[str]:
    """Accept one TLS connection on a port of this machine; yields the address."""
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
def folder(tmp_path: Path) -> CoordinatorFolder:
    return make_coordinator_folder(tmp_path / "coordinator", "127.0.0.1", 9443, 2)


def test_a_coordinator_that_answers_and_is_trusted_is_not_a_problem(folder: CoordinatorFolder):
    with answering(folder.server_files.certificate, folder.server_files.key) as address:
        assert diagnose_connection(address, folder.server_files.authority) is None


def test_a_site_says_that_nobody_answers(folder: CoordinatorFolder):
    port = free_port()
    said = diagnose_connection(f"127.0.0.1:{port}", folder.server_files.authority)
    assert said is not None
    assert said.startswith(f"the coordinator at 127.0.0.1:{port} does not answer (Connection refused); is it running")
    said = diagnose_connection("no-such-machine.invalid:9443", folder.server_files.authority)
    assert said is not None
    assert "does not answer (unknown host name)" in said


def test_a_site_says_that_a_certificate_has_expired(folder: CoordinatorFolder, tmp_path: Path):
    old = resigned(folder.server_files, tmp_path, day(-30), day(-1))
    with answering(old.certificate, folder.server_files.key) as address:
        said = diagnose_connection(address, folder.server_files.authority)
    assert said == f"the certificate of the coordinator at {address} has expired; the coordinator has to renew it"


def test_a_site_says_that_a_certificate_is_not_its_authoritys(folder: CoordinatorFolder, tmp_path: Path):
    other = make_coordinator_folder(tmp_path / "other", "127.0.0.1", 9443, 2)
    with answering(other.server_files.certificate, other.server_files.key) as address:
        said = diagnose_connection(address, folder.server_files.authority)
    assert said is not None
    assert "is not signed by the authority of this site's invitation" in said


def test_a_site_says_that_a_certificate_is_for_another_host(folder: CoordinatorFolder):
    with answering(folder.server_files.certificate, folder.server_files.key, "127.0.1.1") as address:
        said = diagnose_connection(address, folder.server_files.authority)
    assert said is not None
    assert f"the certificate of the coordinator at {address} is for another host" in said


def test_a_site_says_that_a_server_does_not_use_tls(folder: CoordinatorFolder):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve_one() -> None:
            with listener.accept()[0] as line:
                line.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10)

        threading.Thread(target=serve_one, daemon=True).start()
        said = diagnose_connection(f"127.0.0.1:{listener.getsockname()[1]}", folder.server_files.authority)
    assert said is not None
    assert "is not a coordinator: it does not use TLS" in said


NODE = """\x1b[92mINFO \x1b[0m:      Starting Flower SuperNode
\x1b[91mERROR \x1b[0m:     Exit Code: 305
Failed to initialize the connection to the SuperLink.
{}
The SuperNode could not establish a connection to the SuperLink.

INFO:     Shutting down
INFO:     Finished server process [4685]
""".format


def test_a_node_whose_key_is_rejected_is_a_site_that_is_not_on_the_list():
    lines = NODE("[code: 2004] Failed to activate SuperNode.").splitlines()
    assert explain_node_exit(lines, "10.77.0.1:9443") == (
        "the coordinator at 10.77.0.1:9443 rejects this site: is its key on the allow-list? (moonfed federation admit)"
    )


def test_a_log_is_summarised_by_its_last_error_without_colours_and_bounded():
    said = summarize_log(NODE("something else").splitlines())
    assert said == "ERROR : Exit Code: 305 / Failed to initialize the connection to the SuperLink. / something else"
    assert summarize_log(["one", "two \x07", "", "three", "four"]) == "two ? / three / four"
    assert summarize_log([]) == "no output"
    assert len(summarize_log(["x" * 10_000])) == 400


def test_a_site_that_reports_far_more_rows_than_the_others_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    capture(caplog)
    world = World(tmp_path)
    with pytest.raises(RunFailed, match="s1 reports 10000000000 rows"):
        world.federate(InProcessTransport(world.folders, lying(world, "s1", exaggerated, enrolling=True)))
    last = log_of("s1", caplog)[-1]
    assert last.startswith("the coordinator rejects this site: its 10000000000 rows are more than 100 times")
    assert not any("rejects" in text for site in ("s0", "s2") for text in log_of(site, caplog))


def test_a_site_with_fewer_rows_than_a_batch_trains_on_all_of_them(tmp_path: Path):
    world = World(tmp_path)
    config = world.config.model_copy(update={"train": world.config.train.model_copy(update={"batch": 600})})
    transport = InProcessTransport(world.folders)
    record = serve(config, tmp_path / "run", False, world.coordinator, transport, FederationSettings(deadline=30))  # type: ignore[call-arg]
    assert record.finished
    assert {row["steps"] for row in record.rows} == {len(world.folders) * (record.config.train.epochs or 0)}


def test_a_site_whose_classes_do_not_add_up_is_told_and_not_reported_as_late(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    capture(caplog)
    world = World(tmp_path)

    def shortened(numbers: Numbers) -> Numbers:
        return {name: n for name, n in numbers.items() if name != "class9"}

    with pytest.raises(RunFailed, match="s2 cannot take part: the 10 classes do not add up to the rows") as failure:
        world.federate(InProcessTransport(world.folders, lying(world, "s2", shortened, enrolling=True)))
    assert "did not enrol within" not in str(failure.value)
    assert "its enrolment is invalid: the 10 classes" in log_of("s2", caplog)[-1]


def test_a_site_that_is_absent_is_not_reported_as_rejected(tmp_path: Path):
    world = World(tmp_path)
    transport = InProcessTransport(world.folders)
    transport.sessions.pop("s1")
    with pytest.raises(RunFailed, match=r"^s1 did not enrol within 0.5 s; start them with moonfed site join"):
        world.federate(transport)


def test_another_version_is_named_at_both_ends(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    capture(caplog)
    world = World(tmp_path)
    claim = Claim("0" * 16, 0, "0" * 32, digest({}), "s0")
    request = request_envelope(world.coordinator.private_key(), Request(ENROL, claim, version="99.0"), {})
    reply = SiteTrainer(world.folders["s0"]).answer(request)
    for text in (log_of("s0", caplog)[-1], str(reply.fields["refused"])):
        assert f"the coordinator runs moonfed 99.0, this site {__version__}; install the same version" in text


def test_a_damaged_memory_is_reported_with_advice_and_no_path_leaves_the_site(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    capture(caplog)
    world = World(tmp_path)

    def damage(site: str, count: int, request: Envelope, reply: Envelope) -> list[Envelope]:
        if site == "s1" and count == 2:
            (slots,) = (tmp_path / "s1" / "memory").rglob("slots-1.safetensors")
            slots.write_bytes(slots.read_bytes()[:-8] + b"damaged!")
        return [reply]

    rows = world.federate(InProcessTransport(world.folders, damage))
    assert [row["cohort"] for row in rows] == [[0, 1, 2], [0, 2], [0, 2]]
    assert any(str(tmp_path / "s1") in text and "is damaged" in text for text in caplog.messages)
    rejections = world.rejections()
    assert "a new run (federation start with another --out) accepts it again" in rejections
    assert str(tmp_path) not in rejections
    assert "/" not in rejections


def test_an_error_that_leaves_a_site_is_bounded_and_names_no_file(tmp_path: Path):
    site = tmp_path / "my site"
    for error in (
        UserError(f"{site / 'rows.csv'} cannot be read: permission denied"),
        UserError(r"C:\Users\north\rows.csv is empty"),
        OSError(2, "No such file or directory", str(site / "x")),
        Rejection("state lost", f"{site} is gone " + "x" * 5_000),
        RuntimeError(f"CUDA error at {site}"),
    ):
        said = redacted_message(error, [site])
        assert len(said) <= 300
        assert "my site" not in said
        assert "/" not in said
        assert "\\" not in said
    assert (
        redacted_message(UserError("this site is share 5 of a split into 3"))
        == "this site is share 5 of a split into 3"
    )


def test_a_damaged_checkpoint_is_reported_with_advice(tmp_path: Path):
    world = World(tmp_path)
    world.federate(InProcessTransport(world.folders), rounds=1)
    (state,) = (tmp_path / "run" / "checkpoint").glob("state-1.safetensors")
    state.write_bytes(state.read_bytes()[:-8] + b"damaged!")
    with pytest.raises(UserError, match=r"is damaged: .*; use --out for another folder"):
        world.federate(InProcessTransport(world.folders), resume=True)


@pytest.mark.parametrize("count", ["1", "3"])
def test_another_number_of_sites_is_rejected_with_one_line(tmp_path: Path, count: str):
    from moonfed.federation.flower.launcher import create_local_folders

    (tmp_path / "run").mkdir()
    create_local_folders(tmp_path / "run" / "federation", ["site-0", "site-1"], 9443, 1)
    answer = moonfed("federate", "--sites", count, "--resume", "--out", tmp_path / "run")
    assert answer.code == 2
    assert answer.err == (
        f"moonfed: {tmp_path / 'run'} was made with 2 sites, got --sites {count}; use --sites 2, "
        "or --out for another folder\n"
    )


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--deadline", "0"), "federation.deadline needs a value > 0, got 0; set it with --deadline\n"),
        (("--deadline", "abc"), "federation.deadline needs a number, got abc; set it with --deadline\n"),
        (("--attempts", "1.5"), "federation.attempts needs a whole number, got 1.5; set it with --attempts\n"),
        (("--quorum", "1.5"), "federation.quorum needs a value <= 1, got 1.5; set it with --quorum\n"),
        (("--rows-limit", "many"), "federation.rows needs a number, got many; set it with --rows-limit\n"),
        (("--norm-limit", "nan"), "federation.norm needs a finite number, got nan; set it with --norm-limit\n"),
    ],
)
def test_limits_out_of_range_are_rejected_by_the_name_of_their_flag(place: Path, words: tuple[str, str], line: str):
    assert line in refuse(place, "federate", *words)


def test_a_site_that_is_not_on_the_allow_list_is_told_so_by_its_own_command(tmp_path: Path):
    made = Federation(tmp_path, sites=2, admitted=1)
    try:
        made.start().await_word("listening", 60)
        made.join("site-1").await_word("rejects this site: is its key on the allow-list?", 90)
    finally:
        made.end()


def test_an_unknown_federation_setting_is_named_with_those_there_are(place: Path) -> None:
    line = refuse(place, "federate", "--sites", "2", "--set", "federation.norm_limit=3")
    assert 'no setting in [federation] "norm_limit"; did you mean norm?' in line
    Path("f.toml").write_text("[federation]\nwaitt = 5\n")
    assert 'no setting in [federation] "waitt"' in refuse(place, "federate", "--config", "f.toml")
