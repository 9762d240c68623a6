#!/usr/bin/env python3
"""Simulates the services that give out keys on EC2 (metadata, version 2) and ECS; README.md says how to use it.

    credentials_server.py ACCESS_KEY SECRET_KEY [SESSION_TOKEN] [--seconds 900]
"""

import argparse
import datetime
import http.server
import json
import os
import select
import stat
import threading
import time

EC2_TOKEN, CONTAINER_TOKEN = "a-token-of-the-metadata-service", "a-token-of-the-container"
ROLES = "/latest/meta-data/iam/security-credentials/"


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_):
        pass  # clients may stop waiting


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    lock = threading.Lock()
    failures = 0
    stall = 0.0

    def log_message(self, *_):
        pass

    def answer(self, status, content=""):
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content.encode())

    def counted(self, what):
        """Counts a request and delays it; returns whether it must fail."""
        time.sleep(Handler.stall)
        with self.lock:
            fails = Handler.failures > 0
            Handler.failures -= fails
            self.counters["failed" if fails else what] += 1
        if fails:
            self.answer(500)
        return fails

    def keys(self):
        now = datetime.datetime.now(datetime.timezone.utc)
        form = "%Y-%m-%dT%H:%M:%SZ"
        return json.dumps({**self.given, "Code": "Success", "Type": "AWS-HMAC", "LastUpdated": now.strftime(form),
                           "Expiration": (now + datetime.timedelta(seconds=self.seconds)).strftime(form)})

    def do_PUT(self):
        if self.path.startswith("/failures/"):
            Handler.failures = int(self.path.removeprefix("/failures/"))
            self.answer(200)
        elif self.path.startswith("/stall/"):
            Handler.stall = float(self.path.removeprefix("/stall/"))
            self.answer(200)
        elif self.path == "/keys":
            Handler.given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.answer(200)
        elif self.path != "/latest/api/token":
            self.answer(404)
        elif not self.counted("token"):
            self.answer(200, EC2_TOKEN)

    def do_GET(self):
        if self.path == "/counters":
            self.answer(200, json.dumps(self.counters))
        elif self.path == "/container":
            if self.headers["Authorization"] != CONTAINER_TOKEN:
                self.answer(401)
            elif not self.counted("container_keys"):
                self.answer(200, self.keys())
        elif self.path.rstrip("/") + "/" != ROLES and self.path != ROLES + "test":
            self.answer(404)
        elif self.headers["X-aws-ec2-metadata-token"] != EC2_TOKEN:
            self.answer(401)
        elif self.path == ROLES + "test":
            if not self.counted("ec2_keys"):
                self.answer(200, self.keys())
        elif not self.counted("role"):
            self.answer(200, "test")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("access_key")
    parser.add_argument("secret_key")
    parser.add_argument("session_token", nargs="?", default="")
    parser.add_argument("--seconds", type=int, default=900)
    arguments = parser.parse_args()
    Handler.seconds = arguments.seconds
    Handler.given = {"AccessKeyId": arguments.access_key, "SecretAccessKey": arguments.secret_key}
    if arguments.session_token:
        Handler.given["Token"] = arguments.session_token
    Handler.counters = dict.fromkeys(("token", "role", "ec2_keys", "container_keys", "failed"), 0)
    server = Server(("127.0.0.1", 0), Handler)
    endpoint = "http://127.0.0.1:%d" % server.server_port
    print(json.dumps({"endpoint": endpoint, "container_uri": endpoint + "/container",
                      "container_token": CONTAINER_TOKEN, "pid": os.getpid()}), flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    end = select.poll()
    if stat.S_ISFIFO(os.fstat(1).st_mode):
        end.register(1, 0)  # polled so that the end of the pipe's reader is noticed
    end.poll()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
