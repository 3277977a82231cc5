# SPDX-License-Identifier: Apache-2.0
"""Ports that nobody listens on."""

import contextlib
import socket


def free_ports(count: int) -> list[int]:
    """Some, each another one."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def free_port() -> int:
    """One of them."""
    return free_ports(1)[0]
