"""Why a site cannot connect: no answer, no TLS, or a certificate that is not the coordinator's."""

import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path

from moonfed.core.files import short

CONNECT_SECONDS = 5.0
EXPIRED, NOT_YET_VALID, WRONG_HOST = 10, 9, (62, 64)  # OpenSSL's codes of verification errors


def diagnose_connection(address: str, authority: Path, seconds: float = CONNECT_SECONDS) -> str | None:
    """Say why the coordinator cannot be reached at an address; None if it can."""
    host, _, port = address.rpartition(":")
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # as Flower's node makes it
    try:
        trust.load_verify_locations(cadata=authority.read_text())
    except (OSError, ValueError, ssl.SSLError) as error:
        return f"{authority} cannot be read as a certificate ({short(error)}); ask the coordinator for an invitation"
    try:
        with (
            socket.create_connection((host.strip("[]"), int(port)), seconds) as connection,
            trust.wrap_socket(connection, server_hostname=host.strip("[]")),
        ):
            return None
    except ssl.SSLCertVerificationError as error:
        return _explain_certificate(address, error)
    except ssl.SSLError as error:
        return f"the server at {address} is not a coordinator: it does not use TLS ({error.reason or short(error)})"
    except OSError as error:
        why = "unknown host name" if isinstance(error, socket.gaierror) else short(error)
        return f"the coordinator at {address} does not answer ({why}); is it running, and can this machine reach it?"


def _explain_certificate(address: str, error: ssl.SSLCertVerificationError) -> str:
    certificate = f"the certificate of the coordinator at {address}"
    if error.verify_code == EXPIRED:
        return f"{certificate} has expired; the coordinator has to renew it"
    if error.verify_code == NOT_YET_VALID:
        return f"{certificate} is not valid yet; is this machine's clock right?"
    if error.verify_code in WRONG_HOST:
        return f"{certificate} is for another host; ask the coordinator for the address that it was made for"
    return (
        f"{certificate} is not signed by the authority of this site's invitation ({error.verify_message}); "
        "is this the right coordinator, and its newest invitation?"
    )


def call_unless_stopped(call: Callable[[], str | None], stopping: Callable[[], bool]) -> str | None:
    """Make a call that may take seconds; return None early if the user wants to stop."""
    results: list[str | None] = []
    thread = threading.Thread(target=lambda: results.append(call()), daemon=True)
    thread.start()
    while thread.is_alive() and not stopping():
        thread.join(0.1)
    return results[0] if results else None


def wait_unless_stopped(seconds: float, stopping: Callable[[], bool]) -> None:
    """Wait for some seconds, or until the user wants to stop."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not stopping():
        time.sleep(0.1)
