"""Ports for programs that a test starts."""
import itertools
import os
import socket

FIRST, BLOCKS, PORTS_OF_BLOCK = 10000, 50, 120  # as in unused_port.hpp
BLOCK = FIRST + os.getpid() % BLOCKS * PORTS_OF_BLOCK
PORTS = itertools.cycle(range(BLOCK, BLOCK + PORTS_OF_BLOCK))


def unused_port():
    """A port that no program uses, below the ports that the system gives to connections and to sockets that ask for none
    in particular: a test that runs at the same time might get one of those before the program does."""
    for port in itertools.islice(PORTS, PORTS_OF_BLOCK):
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no port from {BLOCK} on is unused")
