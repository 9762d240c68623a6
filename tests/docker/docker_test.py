#!/usr/bin/env python3
"""Checks the files of docker/, without a container engine.

    docker_test.py read                 each instruction can be read, and what it names exists
    docker_test.py run FILE [STAGES]    executes the file's COPY and RUN lines in new roots of Debian, which takes as long
                                        as docker build; needs root, debootstrap and the network. STAGES: only the first
"""
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "docker").glob("Dockerfile*"))
# How this machine reaches its package indexes; without these files a new root has Debian's defaults.
OF_THIS_MACHINE = ["/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/apt/sources.list", "/etc/apt/sources.list.d",
                   "/etc/apt/keyrings", "/etc/apt/apt.conf.d", "/usr/local/share/ca-certificates"]


def instructions(path):
    """The instructions of a Dockerfile, as pairs of a word and the rest of its line."""
    text = "\n".join(line for line in path.read_text().splitlines() if not line.lstrip().startswith("#"))
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip():
            word, _, rest = line.partition(" ")
            yield word, rest.strip()


def stages(path):
    """The stages: each a dict with its name, its base and its further instructions."""
    found = []
    for word, rest in instructions(path):
        if word == "FROM":
            words = rest.split()
            found.append({"base": words[0], "name": words[2] if len(words) == 3 else "", "lines": []})
        else:
            found[-1]["lines"].append((word, rest))
    return found


def targets():
    text = "".join((ROOT / name).read_text() for name in ("samples/CMakeLists.txt", "tools/CMakeLists.txt"))
    return set(re.findall(r"(?:mingpt_program|ddpxx_program|add_executable)\(([\w-]+)", text))


def check_run(line):
    subprocess.run(["sh", "-n", "-c", line], check=True)
    for command in re.split(r"&&|;", line):
        words = shlex.split(command)
        if words[0] != "./dev":
            continue
        assert f"#   ./dev {words[1]}" in (ROOT / "dev").read_text(), f"./dev has no command {words[1]}"
        if words[1] == "build":
            missing = {word for word in words[2:] if not word.startswith("-")} - targets()
            assert not missing, f"no targets of that name: {missing}"


def test_read():
    assert [path.name for path in FILES] == ["Dockerfile", "Dockerfile.cuda"], FILES
    for path in FILES:
        known = set()
        for stage in stages(path):
            assert stage["base"] in {"debian:12", "debian:12-slim"}, stage
            for word, rest in stage["lines"]:
                assert word in {"WORKDIR", "COPY", "RUN", "ENV", "CMD"}, f"{path.name}: {word}"
                if word == "RUN":
                    check_run(rest)
                elif word == "CMD":
                    assert all(isinstance(each, str) for each in json.loads(rest))
                elif word == "COPY" and rest.startswith("--from="):
                    origin, *sources, _ = rest.split()
                    assert origin.removeprefix("--from=") in known, rest
                    for source in sources:
                        assert not source.startswith("/src/") or (ROOT / source.removeprefix("/src/")).exists(), rest
                elif word == "COPY":
                    for source in rest.split()[:-1]:
                        assert (ROOT / source).exists(), f"{path.name}: there is no {source}"
            known.add(stage["name"])
        # Each image has what the job of samples/k8s starts, and executes the example with its file of settings.
        text, job = path.read_text(), (ROOT / "samples" / "k8s" / "train_job.yaml").read_text()
        program, config = re.search(r'args:\n +- "(.*)"\n +- "(--config-name=.*)"', job).groups()
        built = re.search(r"RUN ./dev build (.*)", text)[1].split()
        assert program in built and "ddpxx-run" in built, f"{path.name} does not build {program}"
        assert f"{program} {config}" in text.split("WORKDIR /workspace")[1], f"{path.name} does not try {program} {config}"
        assert "s3://" not in job or "./dev setup s3" in text, f"{path.name} does not build the client of S3"
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {".deps", "build", "runs"} <= set(ignored), ignored
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    assert container["image"] == "debian:12"
    check_run(container["postCreateCommand"])


class NewRoot:
    """A root of Debian 12 in a folder, in which commands run by chroot in a mount namespace of their own."""

    def __init__(self, folder, base):
        self.folder, self.place, self.variables = folder, "/", {}
        subprocess.run(["cp", "--archive", base, folder], check=True)

    def inside(self, path):
        return self.folder / os.path.normpath(os.path.join(self.place, path)).lstrip("/")

    def copy(self, sources, target, root):
        self.inside(target).mkdir(parents=True, exist_ok=True) if target.endswith(("/", ".")) else None
        for source in sources:
            if root is None and source == ".":
                files = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, check=True).stdout
                packed = subprocess.run(["tar", "-C", ROOT, "--null", "-T", "-", "-c"], input=files, capture_output=True,
                                        check=True).stdout
                subprocess.run(["tar", "-C", self.inside(target), "-x"], input=packed, check=True)
                continue
            path = (root.folder if root else ROOT) / source.lstrip("/")
            self.inside(target).parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["cp", "--archive", "--no-target-directory" if path.is_dir() else "--dereference", path,
                            self.inside(target)], check=True)

    def run(self, line):
        print(f"RUN {line}", flush=True)
        script = ('mount --bind /dev "$1/dev"; mount -t proc none "$1/proc"; mount -t tmpfs none "$1/dev/shm"; '
                  'exec chroot "$1" sh -ec "cd \\"$2\\"; $3"')
        kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name.endswith("_proxy")}
        home = {"HOME": "/root", "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        subprocess.run(["unshare", "--mount", "--pid", "--fork", "--propagation", "private", "sh", "-ec", script, "sh",
                        self.folder, self.place, line], env=kept | home | self.variables, check=True)

    def do(self, word, rest, roots):
        if word == "RUN":
            self.run(rest)
        elif word == "WORKDIR":
            self.place = rest
            self.inside(".").mkdir(parents=True, exist_ok=True)
        elif word == "ENV":
            name, value = rest.split("=", 1)
            self.variables[name] = value.replace("$PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        elif word == "COPY":
            *sources, target = rest.split()
            source = roots[sources.pop(0).removeprefix("--from=")] if sources[0].startswith("--from=") else None
            self.copy(sources, target, source)


def test_run(file, number="99"):
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        print("skipped: new roots need root and the program debootstrap")
        sys.exit(77)
    if subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], check=False).returncode != 0:
        print("skipped: new roots need mount and process namespaces, which this root may not make (see unshare's words)")
        sys.exit(77)
    with tempfile.TemporaryDirectory(dir=os.environ.get("DDPXX_ROOTS")) as temporary:
        base, roots = pathlib.Path(temporary) / "base", {}
        made = subprocess.run(["debootstrap", "--variant=minbase", "bookworm", base], check=False, capture_output=True,
                              text=True)
        if made.returncode != 0:
            print(f"skipped: debootstrap cannot make a root, which needs Debian's archive:\n{made.stdout}{made.stderr}")
            sys.exit(77)
        for path in map(pathlib.Path, OF_THIS_MACHINE):
            if path.exists():
                shutil.rmtree(base / path.relative_to("/"), ignore_errors=True)
                subprocess.run(["cp", "--recursive", "--dereference", path, base / path.parent.relative_to("/")], check=True)
        for stage in stages(ROOT / "docker" / file)[:int(number)]:
            root = roots[stage["name"]] = NewRoot(pathlib.Path(temporary) / f"root{len(roots)}", base)
            for word, rest in stage["lines"]:
                root.do(word, rest, roots)


globals()["test_" + sys.argv[1]](*sys.argv[2:])
