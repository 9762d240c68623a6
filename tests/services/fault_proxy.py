#!/usr/bin/env python3
"""An HTTP/1.1 proxy in front of an S3 server that breaks requests by rules; README.md says how to use it.

    fault_proxy.py http://127.0.0.1:PORT

Every request gets a new connection to the server, so that the server's idle timeouts cause no additional faults.
"""

import asyncio
import contextlib
import json
import os
import socket
import stat
import struct
import sys
import urllib.parse

BLOCK = 256 << 10
# The points at which each action can act; the first is the default.
POINTS = {"reset": ("headers", "body", "answer", "reply"), "stall": ("headers", "body", "answer", "reply"),
          "truncate": ("reply",), "corrupt": ("body", "reply"), "lost_reply": ("answer",),
          "pass": ("",), "status": ("",), "error200": ("",)}
KEYS = {"method": str, "path": str, "times": int, "skip": int, "delay": (int, float), "action": str, "at": str,
        "bytes": int, "status": int, "code": str, "drop": str}


class Strike(Exception):
    """Ends an exchange at the point at which the rule's fault happens."""


class Rule:
    def __init__(self, wanted):
        for key, value in wanted.items():
            if key not in KEYS or not isinstance(value, KEYS[key]):
                raise ValueError(f"{key}: {value!r} is not what a rule takes")
        self.wanted = {"action": "pass", **wanted}
        self.action = self.wanted["action"]
        if self.action not in POINTS:
            raise ValueError(f"action: {self.action!r} is none of {', '.join(POINTS)}")
        self.at = self.wanted.get("at", POINTS[self.action][0])
        if self.at not in POINTS[self.action]:
            raise ValueError(f"at: {self.action} cannot strike at {self.at!r}")
        self.bytes = self.wanted.get("bytes", 0)
        self.seen = self.hits = 0

    def hit(self, method, path):
        if self.wanted.get("method", method) != method or self.wanted.get("path", "") not in path:
            return False
        self.seen += 1
        if self.seen <= self.wanted.get("skip", 0) or self.hits >= self.wanted.get("times", sys.maxsize):
            return False
        self.hits += 1
        return True

    def strikes(self, point):
        return self.action != "corrupt" and self.at == point

    def error(self):
        """The answer that the proxy sends instead of the server."""
        status, code = self.wanted.get("status", 503), self.wanted.get("code", "SlowDown")
        if self.action == "error200":
            status, code = 200, self.wanted.get("code", "InternalError")
        elif status < 300:
            return status, b""
        return status, f"<Error><Code>{code}</Code><Message>a rule of the test's proxy</Message></Error>".encode()


class Head:
    """The first line and the header fields of a request or an answer."""

    def __init__(self, raw):
        self.raw = raw
        self.start, *lines = raw.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        self.fields = {name.strip().lower(): value.strip() for name, _, value in pairs}

    @classmethod
    async def read(cls, reader):
        return cls(await reader.readuntil(b"\r\n\r\n"))

    def without(self, name):
        """The unchanged lines without the line of this field."""
        return b"\r\n".join(line for line in self.raw.split(b"\r\n")
                            if line.partition(b":")[0].decode("latin-1").lower() != name)

    def says(self, name, word):
        return word in self.fields.get(name, "").lower()


class Server:
    """A connection to the server on a plain socket, so that its answer can be read after it has refused the body."""

    def __init__(self):
        self.loop, self.socket = asyncio.get_running_loop(), socket.socket()
        self.socket.setblocking(False)
        self.arrived = self.unsent = b""

    async def connect(self, address):
        await self.loop.sock_connect(self.socket, address)

    async def read(self, count):
        self.arrived = self.arrived or await self.loop.sock_recv(self.socket, BLOCK)
        block, self.arrived = self.arrived[:count], self.arrived[count:]
        return block

    async def readuntil(self, end):
        while end not in self.arrived:
            more = await self.loop.sock_recv(self.socket, BLOCK)
            if not more:
                raise ConnectionResetError
            self.arrived += more
        return await self.read(self.arrived.index(end) + len(end))

    def write(self, block):
        self.unsent += block

    async def drain(self):
        block, self.unsent = self.unsent, b""
        await self.loop.sock_sendall(self.socket, block)


async def body(reader, head, until_closed=False):
    """The blocks of the body as sent on the wire, including the framing of chunks."""
    async def exactly(count):
        while count:
            block = await reader.read(min(count, BLOCK))
            if not block:
                raise ConnectionResetError
            count -= len(block)
            yield block

    if head.says("transfer-encoding", "chunked"):
        size = None
        while size != 0:
            yield (line := await reader.readuntil(b"\r\n"))
            size = int(line.split(b";")[0], 16)
            if size:
                async for block in exactly(size + 2):
                    yield block
        while line != b"\r\n":  # skips trailers up to the empty line behind them
            yield (line := await reader.readuntil(b"\r\n"))
    elif "content-length" in head.fields:
        async for block in exactly(int(head.fields["content-length"])):
            yield block
    elif until_closed:
        while block := await reader.read(BLOCK):
            yield block


async def forward(blocks, writer, rule, point):
    passed = 0
    async for block in blocks:
        left = rule.bytes - passed
        passed += len(block)
        if 0 <= left < len(block):
            if rule.strikes(point):
                writer.write(block[:left])
                break
            if rule.action == "corrupt" and rule.at == point:
                block = block[:left] + bytes([block[left] ^ 1]) + block[left + 1:]
        writer.write(block)
        await writer.drain()
    await writer.drain()
    if rule.strikes(point):
        raise Strike


def reset(writer):
    with contextlib.suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def write_answer(writer, status, content, kind):
    writer.write(f"HTTP/1.1 {status} Proxy\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n\r\n".encode())
    writer.write(content)


class Proxy:
    def __init__(self, server):
        self.server = urllib.parse.urlsplit(server)
        self.rules, self.requests = [], []

    async def client(self, reader, writer):
        try:
            while True:
                head = await Head.read(reader)
                method, path, _ = head.start.split(" ", 2)
                rule = next((rule for rule in self.rules if rule.hit(method, path)), Rule({}))
                entry = {"method": method, "path": path, "host": head.fields.get("host", ""),
                         "action": rule.action, "status": None}
                self.requests.append(entry)
                await asyncio.sleep(rule.wanted.get("delay", 0))
                if not await self.exchange(reader, writer, head, method, rule, entry):
                    return
        except Strike:
            if rule.action == "stall":
                with contextlib.suppress(OSError):
                    while await reader.read(BLOCK):  # waits until the client gives up
                        pass
            elif rule.action != "truncate":
                reset(writer)
        except asyncio.IncompleteReadError as error:
            if error.partial:  # otherwise the client has closed the connection between two requests
                reset(writer)
        except OSError:
            reset(writer)
        finally:
            writer.close()

    async def exchange(self, reader, writer, head, method, rule, entry):
        """Forwards a request and its answer; returns whether the client may send another one on this connection."""
        if rule.strikes("headers"):
            raise Strike
        if head.says("expect", "100-continue"):
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if rule.action in ("status", "error200"):
            async for _ in body(reader, head):
                pass
            entry["status"], content = rule.error()
            write_answer(writer, entry["status"], content if method != "HEAD" else b"", "application/xml")
            await writer.drain()
            return True
        server = Server()
        try:
            await server.connect((self.server.hostname, self.server.port))
            server.write(head.raw)
            blocks = body(reader, head)
            try:
                await forward(blocks, server, rule, "body")
            except ConnectionError:
                if reader.at_eof() or reader.exception():  # the client has closed the connection, not the server
                    raise
            answer = await Head.read(server)
            while answer.start.split()[1].startswith("1"):  # the proxy has sent its own interim answer above
                answer = await Head.read(server)
            if rule.strikes("answer"):
                raise Strike
            status = int(answer.start.split()[1])
            dropped = rule.wanted.get("drop", "").lower()
            writer.write(answer.without(dropped) if dropped else answer.raw)
            entry["status"] = status
            empty = method == "HEAD" or status in (204, 304)
            if not empty:
                await forward(body(server, answer, until_closed=True), writer, rule, "reply")
            await writer.drain()
            async for _ in blocks:  # drains the part of the body that the server did not read
                pass
            ends = empty or "content-length" in answer.fields or answer.says("transfer-encoding", "chunked")
            ends = ends and dropped not in ("content-length", "transfer-encoding")
            return ends and not answer.says("connection", "close") and not head.says("connection", "close")
        finally:
            server.socket.close()

    async def control(self, reader, writer):
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await Head.read(reader)
            content = await reader.readexactly(int(head.fields.get("content-length", 0)))
            status, reply = 200, None
            match head.start.split()[:2]:
                case ["GET", "/requests"]:
                    reply = self.requests
                case ["PUT", "/rules"]:
                    try:
                        self.rules, self.requests = [Rule(wanted) for wanted in json.loads(content)], []
                    except (ValueError, TypeError, AttributeError) as error:
                        status, reply = 400, {"error": str(error)}
                case ["DELETE", "/rules"]:
                    self.rules = []
                case what if what != ["GET", "/rules"]:
                    status, reply = 404, {"error": "there are GET, PUT, DELETE of /rules, and GET of /requests"}
            if reply is None:
                reply = [{**rule.wanted, "hits": rule.hits} for rule in self.rules]
            write_answer(writer, status, json.dumps(reply).encode() + b"\n", "application/json")
            await writer.drain()
        writer.close()


async def main(server):
    proxy, addresses = Proxy(server), []
    for handle in (proxy.client, proxy.control):
        listener = await asyncio.start_server(handle, "127.0.0.1", 0, limit=BLOCK, backlog=512)
        addresses.append("http://127.0.0.1:%d" % listener.sockets[0].getsockname()[1])
    print(json.dumps({"endpoint": addresses[0], "control": addresses[1], "pid": os.getpid()}), flush=True)
    reader_gone = asyncio.Event()
    if stat.S_ISFIFO(os.fstat(1).st_mode):
        # Ends the proxy when the reader of its output has ended.
        asyncio.get_running_loop().add_reader(1, reader_gone.set)
    await reader_gone.wait()


if __name__ == "__main__":
    if len(sys.argv) != 2 or not sys.argv[1].startswith("http://"):
        sys.exit(__doc__)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(sys.argv[1]))
