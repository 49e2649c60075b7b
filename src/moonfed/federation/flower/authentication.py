"""Authentication of requests at the coordinator's port: known paths, signed with a key of the allow-list."""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import datetime

import h11
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_HEADER, TIMESTAMP_TOLERANCE
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.date import now
from flwr.supercore.primitives.asymmetric import verify_signature

from moonfed.federation.flower.http_relay import MAX_HEAD_BYTES, BodyTooLarge, Headers
from moonfed.federation.flower.messages import flower_key_bytes

NODE_METHODS = ("activate-node", "deactivate-node", "send-node-heartbeat", "get-run", "get-fab")
NODE_METHODS += ("pull-messages", "push-messages", "pull-object", "push-object", "confirm-message-received")
PATHS = frozenset(f"/v1/fleet/{name}".encode() for name in NODE_METHODS)  # of Flower 1.41
FORWARDED_HEADERS = frozenset({b"accept", b"accept-encoding", b"content-type", b"user-agent"})  # besides Flower's own
FLOWER_HEADER = b"flwr-"


class RejectedRequest(Exception):
    """A request that is not forwarded: the HTTP status, the kind of rejection and its detail."""

    def __init__(self, status: int, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.status, self.kind, self.detail = status, kind, detail


class Authenticator:
    """Recognises the sites of the allow-list by the signatures of their nodes' requests."""

    def __init__(self, allowed: Mapping[str, EllipticCurvePublicKey]) -> None:
        self.keys = {b64encode(flower_key_bytes(key)): (site, key) for site, key in allowed.items()}

    def authenticate(self, request: h11.Request, max_body: int) -> tuple[str, Headers]:
        """Return the site that sent a request and the headers to forward, or reject the request."""
        if request.method != b"POST" or request.target not in PATHS:
            shown = (request.method[:16] + b" " + request.target[:120]).decode("latin-1")
            raise RejectedRequest(404, "path", f"{shown} is not a path that sites use")
        headers = [(k, v) for k, v in request.headers if k in FORWARDED_HEADERS or k.startswith(FLOWER_HEADER)]
        values, lengths = dict(headers), [v for k, v in request.headers if k == b"content-length"]
        if len(values) != len(headers) or any(k == b"transfer-encoding" for k, _ in request.headers):
            raise RejectedRequest(400, "malformed", "a repeated header, or a body without a length")
        too_long = sum(len(k) + len(v) for k, v in request.headers) > MAX_HEAD_BYTES
        if too_long or any(int(n) > max_body for n in lengths):
            raise BodyTooLarge
        return self._verify(values), headers

    def _verify(self, headers: dict[bytes, bytes]) -> str:
        site, key = self.keys.get(headers.get(FLEET_HTTP_PUBLIC_KEY_HEADER.encode(), b""), ("", None))
        if key is None:
            raise RejectedRequest(412, "key", "the node's key is not on the allow-list")
        try:
            signature = b64decode(headers.get(FLEET_HTTP_SIGNATURE_HEADER.encode(), b""), validate=True)
        except ValueError:
            signature = b""
        timestamp = headers.get(TIMESTAMP_HEADER.encode(), b"")
        if not verify_signature(key, timestamp, signature):
            raise RejectedRequest(412, "key", f"the node shows the key of {site}, but its signature is invalid")
        if (offset := _clock_offset(timestamp)) is not None:
            raise RejectedRequest(412, "clock", f"the clock of {site} is {offset}; correct it")
        return site


def _clock_offset(timestamp: bytes) -> str | None:
    """Say how far a site's clock is off, if Flower would reject what it signs."""
    try:
        late = (now() - datetime.fromisoformat(timestamp.decode())).total_seconds()
    except (ValueError, TypeError):
        return "unreadable"
    if late <= -SYSTEM_TIME_TOLERANCE:
        return f"{-late:.0f} s ahead of the coordinator's"
    return f"{late:.0f} s behind the coordinator's" if late >= TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE else None
