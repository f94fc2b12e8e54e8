"""grpc.health.v1.Health/Check, by which load balancers and Kubernetes ask whether a server serves.

Both messages are one field: they are written here byte by byte instead of with a further package.
"""

from __future__ import annotations

import grpc

from torchbeast.serving.messages import SERVICE

HEALTH_SERVICE = "grpc.health.v1.Health"
# HealthCheckResponse{status: SERVING}: field 1, a varint, is 1.
SERVING = b"\x08\x01"


def encode_request(service: str) -> bytes:
    """Returns a HealthCheckRequest: field 1 is the name of a service of less than 128 bytes."""
    return b"\x0a" + bytes([len(service)]) + service.encode()


# For the whole server, which may be said in two ways, and for the service of environments.
KNOWN_REQUESTS = {b"", encode_request(""), encode_request(SERVICE)}


def _check(request: bytes, context: grpc.ServicerContext) -> bytes:
    if request not in KNOWN_REQUESTS:
        context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
    return SERVING


HANDLER = grpc.method_handlers_generic_handler(
    HEALTH_SERVICE, {"Check": grpc.unary_unary_rpc_method_handler(_check)}
)
"""Handler of the health service. Watch is unimplemented, as the protocol allows."""
