"""Tests each rule of the fault proxy, the TLS proxy and the credentials server with a small server of the standard
library."""

import contextlib
import http.client
import http.server
import json
import pathlib
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

HERE = pathlib.Path(__file__).parent
CONTENT = bytes(range(256)) * 4096  # one MiB


@contextlib.contextmanager
def program(name, *arguments):
    """Starts a program of this folder, and ends it as the C++ tests do: by closing the pipe of its output."""
    with subprocess.Popen([sys.executable, HERE / name, *arguments], stdout=subprocess.PIPE) as process:
        try:
            yield json.loads(process.stdout.readline())
            process.stdout.close()
            process.wait(timeout=10)
        finally:
            process.kill()


def ask(endpoint, method, path, body=None, timeout=10, **headers):
    """Status, body and headers of one answer."""
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(endpoint).netloc, timeout=timeout)
    with contextlib.closing(connection):
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read(), dict(answer.getheaders())


class Upstream(http.server.BaseHTTPRequestHandler):
    """Stores the bodies of PUT requests and serves them; /chunked serves CONTENT in chunks."""
    protocol_version = "HTTP/1.1"
    stored = {}

    def log_message(self, *_):
        pass

    def answer(self, status, content=b""):
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def do_PUT(self):
        if self.path == "/denied":
            self.answer(403, b"no")
            self.close_connection = True
            return
        content = self.rfile.read(int(self.headers["Content-Length"] or 0))
        if len(content) == int(self.headers["Content-Length"] or 0):
            self.stored[self.path] = content
            self.answer(200)

    def do_GET(self):
        if self.path == "/chunked":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for part in (CONTENT[:1000], CONTENT[1000:], b""):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        elif self.path in self.stored:
            self.answer(200, self.stored[self.path])
        else:
            self.answer(404)

    do_HEAD = do_GET


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_):
        pass  # the proxy cuts its connections


class FaultProxy(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.upstream = Server(("127.0.0.1", 0), Upstream)
        threading.Thread(target=cls.upstream.serve_forever, daemon=True).start()
        cls.addClassCleanup(cls.upstream.server_close)
        cls.addClassCleanup(cls.upstream.shutdown)

    def setUp(self):
        Upstream.stored = {"/object": CONTENT}
        running = contextlib.ExitStack()
        self.addCleanup(running.close)
        self.proxy = running.enter_context(program("fault_proxy.py", f"http://127.0.0.1:{self.upstream.server_port}"))

    def rules(self, *rules, status=200):
        self.assertEqual(ask(self.proxy["control"], "PUT", "/rules", json.dumps(rules))[0], status)

    def hits(self):
        return [rule["hits"] for rule in json.loads(ask(self.proxy["control"], "GET", "/rules")[1])]

    def requests(self):
        return json.loads(ask(self.proxy["control"], "GET", "/requests")[1])

    def get(self, path="/object", **options):
        return ask(self.proxy["endpoint"], "GET", path, **options)

    def put(self, path="/new", **options):
        return ask(self.proxy["endpoint"], "PUT", path, CONTENT, **options)

    def test_passes_everything_where_no_rule_matches(self):
        self.rules({"method": "POST", "action": "reset"}, {"path": "other", "action": "reset"})
        self.assertEqual(self.put("/new?part=1&x=%2F")[0], 200)
        self.assertEqual(Upstream.stored["/new?part=1&x=%2F"], CONTENT)
        self.assertEqual(self.get()[:2], (200, CONTENT))
        self.assertEqual(self.get("/chunked")[:2], (200, CONTENT))
        self.assertEqual(self.get("/missing")[0], 404)
        status, body, headers = ask(self.proxy["endpoint"], "HEAD", "/object")
        self.assertEqual((status, body, headers["Content-Length"]), (200, b"", str(len(CONTENT))))
        self.assertEqual(self.put(Expect="100-continue")[0], 200)
        self.assertEqual(self.hits(), [0, 0])
        self.assertEqual([r["status"] for r in self.requests()], [200, 200, 200, 404, 200, 200])
        self.assertEqual({"http://" + r["host"] for r in self.requests()}, {self.proxy["endpoint"]})

    def test_an_answer_before_the_body_was_sent_arrives(self):
        for _ in range(20):
            self.assertEqual(ask(self.proxy["endpoint"], "PUT", "/denied", CONTENT * 16)[:2], (403, b"no"))

    def test_one_connection_serves_many_requests(self):
        connection = http.client.HTTPConnection(urllib.parse.urlsplit(self.proxy["endpoint"]).netloc, timeout=10)
        with contextlib.closing(connection):
            for path in ("/object", "/chunked", "/object"):
                connection.request("GET", path)
                first = connection.sock
                self.assertEqual(connection.getresponse().read(), CONTENT)
                self.assertIs(connection.sock, first)

    def test_status_as_often_as_told_then_passes(self):
        self.rules({"method": "PUT", "path": "new", "action": "status", "skip": 1, "times": 2},
                   {"method": "GET", "action": "status", "status": 403, "code": "ExpiredToken"})
        self.assertEqual([self.put()[0] for _ in range(4)], [200, 503, 503, 200])
        status, body, _ = self.get()
        self.assertEqual(status, 403)
        self.assertIn(b"<Error><Code>ExpiredToken</Code>", body)
        self.assertEqual(self.hits(), [2, 1])

    def test_error200_does_not_reach_the_server(self):
        self.rules({"action": "error200"})
        status, body, _ = self.put()
        self.assertEqual(status, 200)
        self.assertIn(b"<Code>InternalError</Code>", body)
        self.assertNotIn("/new", Upstream.stored)

    def test_reset_at_every_point(self):
        for at, method, reached in (("headers", "PUT", False), ("body", "PUT", False), ("answer", "PUT", True),
                                    ("reply", "GET", True)):
            with self.subTest(at=at):
                Upstream.stored = {"/object": CONTENT}
                self.rules({"action": "reset", "at": at, "bytes": 70000})
                with self.assertRaises(ConnectionError):
                    self.get() if method == "GET" else self.put()
                self.assertEqual(method == "GET" or "/new" in Upstream.stored, reached)
                self.assertEqual(self.hits(), [1])
                self.assertEqual(self.requests()[0]["status"], 200 if at == "reply" else None)

    def test_lost_reply_lets_the_server_do_the_work(self):
        self.rules({"action": "lost_reply", "times": 1})
        with self.assertRaises(ConnectionError):
            self.put()
        self.assertEqual(Upstream.stored["/new"], CONTENT)
        self.assertEqual(self.get("/new")[1], CONTENT)

    def test_stall_lasts_until_the_client_gives_up(self):
        for at in ("headers", "body", "answer", "reply"):
            with self.subTest(at=at):
                self.rules({"action": "stall", "at": at, "bytes": 5})
                with self.assertRaises(TimeoutError):
                    self.get(timeout=0.3) if at == "reply" else self.put(timeout=0.3)

    def test_truncate_ends_in_good_order(self):
        self.rules({"action": "truncate", "bytes": 300000})
        with self.assertRaises(http.client.IncompleteRead) as caught:
            self.get()
        self.assertEqual(caught.exception.partial, CONTENT[:300000])

    def test_an_answer_loses_a_header(self):
        self.rules({"drop": "Content-Length", "action": "truncate", "bytes": 300000})
        # A client that does not know the length takes this for the whole object.
        self.assertEqual(self.get()[1], CONTENT[:300000])
        self.rules({"drop": "content-length"})
        self.assertEqual(self.get()[1], CONTENT)

    def test_corrupt_flips_one_bit(self):
        flipped = CONTENT[:300000] + bytes([CONTENT[300000] ^ 1]) + CONTENT[300001:]
        self.rules({"action": "corrupt", "at": "reply", "bytes": 300000})
        self.assertEqual(self.get()[1], flipped)
        self.rules({"action": "corrupt", "bytes": 300000})
        self.assertEqual(self.put()[0], 200)
        self.assertEqual(Upstream.stored["/new"], flipped)

    def test_delay_waits_and_passes(self):
        self.rules({"delay": 0.3})
        begin = time.monotonic()
        self.assertEqual(self.get()[:2], (200, CONTENT))
        self.assertGreaterEqual(time.monotonic() - begin, 0.3)

    def test_a_wrong_rule_is_refused_and_changes_nothing(self):
        self.rules({"action": "status"})
        for wrong in ({"action": "explode"}, {"when": "body"}, {"times": "3"}, {"action": "truncate", "at": "body"}, 1):
            self.rules(wrong, status=400)
        self.assertEqual(self.get()[0], 503)
        ask(self.proxy["control"], "DELETE", "/rules")
        self.assertEqual(self.get()[0], 200)


class CredentialsServer(unittest.TestCase):
    def test_hands_out_keys_as_ec2_and_ecs_do(self):
        with program("credentials_server.py", "key", "secret", "session", "--seconds", "60") as server:
            endpoint, roles = server["endpoint"], "/latest/meta-data/iam/security-credentials/"
            self.assertEqual(ask(endpoint, "GET", roles)[0], 401)
            token = ask(endpoint, "PUT", "/latest/api/token")[1].decode()
            known = {"X-aws-ec2-metadata-token": token}
            role = ask(endpoint, "GET", roles, **known)[1].decode()
            self.assertEqual(ask(endpoint, "PUT", "/failures/1")[0], 200)
            self.assertEqual(ask(endpoint, "GET", roles + role, **known)[0], 500)
            keys = json.loads(ask(endpoint, "GET", roles + role, **known)[1])
            given = {"AccessKeyId": "key", "SecretAccessKey": "secret", "Token": "session"}
            self.assertEqual(keys, {**keys, **given})
            expires = time.mktime(time.strptime(keys["Expiration"], "%Y-%m-%dT%H:%M:%SZ")) - time.timezone
            self.assertAlmostEqual(expires, time.time() + 60, delta=10)
            path = urllib.parse.urlsplit(server["container_uri"]).path
            self.assertEqual(ask(endpoint, "GET", path)[0], 401)
            self.assertEqual(ask(endpoint, "GET", path, Authorization=server["container_token"])[0], 200)
            counters = json.loads(ask(endpoint, "GET", "/counters")[1])
            self.assertEqual(counters, {"token": 1, "role": 1, "ec2_keys": 1, "container_keys": 1, "failed": 1})

    def test_changes_its_keys_and_stalls(self):
        with program("credentials_server.py", "key", "secret") as server:
            endpoint, known = server["endpoint"], {"Authorization": server["container_token"]}
            self.assertEqual(ask(endpoint, "PUT", "/keys", json.dumps({"AccessKeyId": "next"}))[0], 200)
            self.assertEqual(json.loads(ask(endpoint, "GET", "/container", **known)[1])["AccessKeyId"], "next")
            self.assertEqual(ask(endpoint, "PUT", "/stall/5")[0], 200)
            with self.assertRaises(TimeoutError):
                ask(endpoint, "GET", "/container", timeout=0.3, **known)
            self.assertEqual(ask(endpoint, "PUT", "/stall/0")[0], 200)
            self.assertEqual(ask(endpoint, "GET", "/container", **known)[0], 200)


class TlsProxy(unittest.TestCase):
    def test_is_trusted_through_its_authority_only(self):
        upstream = Server(("127.0.0.1", 0), Upstream)
        self.addCleanup(upstream.server_close)
        threading.Thread(target=upstream.serve_forever, daemon=True).start()
        self.addCleanup(upstream.shutdown)
        Upstream.stored = {"/object": CONTENT}
        with tempfile.TemporaryDirectory() as folder:
            with program("tls_proxy.py", f"http://127.0.0.1:{upstream.server_port}", folder) as proxy:
                trusted = ssl.create_default_context(cafile=proxy["ca_bundle"])
                with urllib.request.urlopen(proxy["endpoint"] + "/object", context=trusted) as answer:
                    self.assertEqual(answer.read(), CONTENT)
                with self.assertRaisesRegex(urllib.error.URLError, "CERTIFICATE_VERIFY_FAILED"):
                    urllib.request.urlopen(proxy["endpoint"] + "/object", context=ssl.create_default_context())


if __name__ == "__main__":
    unittest.main()
