#!/usr/bin/env python3
"""Accepts TLS connections in front of a server that speaks plain HTTP; README.md says how to use it.

    tls_proxy.py http://127.0.0.1:PORT FOLDER

Writes a new certificate authority to FOLDER, and a certificate for 127.0.0.1 that this authority has signed.
"""

import asyncio
import contextlib
import json
import os
import pathlib
import ssl
import stat
import subprocess
import sys
import urllib.parse

BLOCK = 256 << 10


def make_certificates(folder):
    """Writes ca.pem, server.pem and server.key."""
    def request(name, subject, *more):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-days", "2", "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem",
                        "-subj", subject, *more], check=True, stderr=subprocess.DEVNULL)

    request("ca", "/CN=an authority of the tests")
    request("server", "/CN=127.0.0.1", "-CA", folder / "ca.pem", "-CAkey", folder / "ca.key",
            "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE")


async def copy(reader, writer):
    while block := await reader.read(BLOCK):
        writer.write(block)
        await writer.drain()


async def serve(upstream, folder):
    make_certificates(folder)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")

    async def connect(client, to_client):
        with contextlib.suppress(OSError, asyncio.CancelledError):
            server, to_server = await asyncio.open_connection(upstream.hostname, upstream.port)
            both = [asyncio.ensure_future(copy(*way)) for way in ((client, to_server), (server, to_client))]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for way in both:
                way.cancel()
            to_server.close()
        to_client.close()

    listening = await asyncio.start_server(connect, "127.0.0.1", 0, ssl=context)
    endpoint = "https://127.0.0.1:%d" % listening.sockets[0].getsockname()[1]
    print(json.dumps({"endpoint": endpoint, "ca_bundle": str(folder / "ca.pem"), "pid": os.getpid()}), flush=True)
    reader_gone = asyncio.Event()
    if stat.S_ISFIFO(os.fstat(1).st_mode):
        # Ends the proxy when the reader of its output has ended.
        asyncio.get_running_loop().add_reader(1, reader_gone.set)
    await reader_gone.wait()


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # a handshake that fails on purpose must not be logged
    with contextlib.suppress(KeyboardInterrupt):
        loop.run_until_complete(serve(urllib.parse.urlsplit(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()))
    os._exit(0)


if __name__ == "__main__":
    main()
