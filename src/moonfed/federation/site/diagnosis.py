"""Why a site is not let in, in a line: nobody answers, it is not the coordinator, or the site is not on its list."""

import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path

from moonfed.core.files import short

SECONDS = 5.0  # that a coordinator may take to answer the door
EXPIRED, EARLY, NAMES = 10, 9, (62, 64)  # OpenSSL's verdicts: too late, too soon, another host or address


def trouble_at(address: str, authority: Path, seconds: float = SECONDS) -> str | None:
    """Say why nobody who could be the coordinator answers at an address; None where all is well."""
    host, _, port = address.rpartition(":")
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # as Flower's node makes it
    try:
        trust.load_verify_locations(cadata=authority.read_text())
    except (OSError, ValueError, ssl.SSLError) as error:
        return f"{authority} cannot be read as a certificate ({short(error)}): ask the coordinator for an invitation"
    try:
        with (
            socket.create_connection((host.strip("[]"), int(port)), seconds) as line,
            trust.wrap_socket(line, server_hostname=host.strip("[]")),
        ):
            return None
    except ssl.SSLCertVerificationError as error:
        return _untrusted(address, error)
    except ssl.SSLError as error:
        return f"what answers at {address} is no coordinator: it does not speak TLS ({error.reason or short(error)})"
    except OSError as error:
        why = "no machine of this name" if isinstance(error, socket.gaierror) else short(error)
        return f"the coordinator at {address} does not answer ({why}): is it running, and may this machine reach it?"


def _untrusted(address: str, error: ssl.SSLCertVerificationError) -> str:
    whose = f"the certificate of the coordinator at {address}"
    if error.verify_code == EXPIRED:
        return f"{whose} has expired: the coordinator has to renew it"
    if error.verify_code == EARLY:
        return f"{whose} is not valid yet: is this machine's clock right?"
    if error.verify_code in NAMES:
        return f"{whose} is for another name: ask the coordinator for the address that it was made for"
    return (
        f"{whose} is not signed by the authority of this site's invitation ({error.verify_message}): "
        "is it the right coordinator, and its newest invitation?"
    )


def aside(call: Callable[[], str | None], stopping: Callable[[], bool]) -> str | None:
    """Make a call that may take seconds without becoming deaf to the wish to stop."""
    found: list[str | None] = []
    thread = threading.Thread(target=lambda: found.append(call()), daemon=True)
    thread.start()
    while thread.is_alive() and not stopping():
        thread.join(0.1)
    return found[0] if found else None


def pause(seconds: float, stopping: Callable[[], bool]) -> None:
    """Wait, but not for longer than one is to go on."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends and not stopping():
        time.sleep(0.1)
