#!/usr/bin/env python3
"""Checks how tools/fetch_deps.py treats folders of another use, and how it ends. Nothing is downloaded but a file of this
machine."""
import functools
import hashlib
import http.server
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import fetch_deps  # noqa: E402


def refusal(folder, kind, prefix=()):
    """What fetch_deps writes to stderr. An ordinary call would go on to download packages."""
    done = subprocess.run([*prefix, sys.executable, ROOT / "tools/fetch_deps.py", folder, kind], capture_output=True,
                          text=True, timeout=60, check=False)
    assert done.returncode == 1, done
    return done.stderr


def write_program(path, body):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def check_uses(folder):
    package = folder / "done" / "torch.whl"
    package.parent.mkdir()
    package.write_text("")
    for use, kinds in (("slim, cuda, s3 or full", ["docs", "torch==2.12.0"]), ("docs", ["slim", "torch==2.12.0"]),
                       ("torch==2.12.0", ["full", "docs", "torch==2.13.0"])):
        (folder / "used-for").write_text(use + "\n")
        for kind in kinds:
            assert f"was made for {use}, and {kind} would remove its packages" in refusal(folder, kind)
            assert package.exists() and (folder / "used-for").read_text() == use + "\n"


def write_answer(deps):
    """Makes a folder for which the package index has named four wheels already."""
    deps.mkdir()
    question = fetch_deps.question_of([fetch_deps.DOCS])
    wheels = [{"name": name, "url": f"http://127.0.0.1:1/{name}.whl", "sha256": ""} for name in "abcd"]
    (deps / "resolved.json").write_text(json.dumps({"question": question, "wheels": wheels}))


def answer_of_pip(command, _):
    """Takes the place of fetch_deps.run: writes the report of a pip that has found one wheel."""
    if "--report" in command:
        item = {"metadata": {"name": "new"}, "download_info": {"url": "http://127.0.0.1:1/new.whl",
                                                               "archive_info": {"hashes": {"sha256": ""}}}}
        pathlib.Path(command[command.index("--report") + 1]).write_text(json.dumps({"install": [item]}))


def check_answer(folder):
    """The answer of the package index is stored as a whole; a damaged one is asked for again."""
    deps = folder / "deps"
    write_answer(deps)
    answer, old = deps / "resolved.json", folder / "old"
    run, fetch_deps.run = fetch_deps.run, answer_of_pip
    try:
        assert [wheel["name"] for wheel in fetch_deps.resolve(deps, fetch_deps.DOCS)] == list("abcd")
        for damaged in ("", '{"question": {"wan', "[]", "{}", '"wheels"'):
            answer.write_text(damaged)
            os.link(answer, old)
            assert [wheel["name"] for wheel in fetch_deps.resolve(deps, fetch_deps.DOCS)] == ["new"], damaged
            assert json.loads(answer.read_text())["wheels"][0]["name"] == "new" and old.read_text() == damaged
            old.unlink()
    finally:
        fetch_deps.run = run


def check_early_client(folder):
    """The client of S3 is built while pip is asked for the files, which takes half a minute."""
    began = threading.Event()

    def answer(command, problem):
        assert "--report" not in command or began.wait(60), "the client waits for the answer of the package index"
        answer_of_pip(command, problem)

    replaced = {"run": answer, "build_crt": lambda _: began.set(), "fetch": lambda *_: None}
    kept, arguments = {name: getattr(fetch_deps, name) for name in replaced}, sys.argv
    vars(fetch_deps).update(replaced)
    sys.argv = ["fetch_deps.py", str(folder), "full"]
    try:
        fetch_deps.main()
    finally:
        vars(fetch_deps).update(kept)
        sys.argv = arguments
    assert began.is_set()


def check_packages_of_tests(folder):
    """A build does not ask for the packages of the tests, and keeps them where they are there."""
    build, tests = fetch_deps.groups_for(folder, "slim"), fetch_deps.groups_for(folder, "full")
    assert "torch==2.11.0" in build[0] and not any("pyyaml" in word for group in build for word in group), build
    assert "torch==2.11.0" in tests[0] and "pyyaml==6.0.3" in tests[0], tests
    (folder / "resolved.json").write_text(json.dumps({"question": fetch_deps.question_of(tests), "wheels": []}))
    assert fetch_deps.groups_for(folder, "slim") == tests, "the answer that is there would be replaced"
    done = folder / "done"
    done.mkdir()
    for name in ("torch-2.10.0-cp311.whl", "torch-2.11.0-cp311.whl", "PyYAML-6.0.2-cp311.whl"):
        (done / name).touch()
    known = [{"name": "torch", "url": "http://127.0.0.1:1/torch-2.11.0-cp311.whl"}]
    for is_all, expected in ((False, {"torch-2.10.0-cp311.whl"}), (True, {"torch-2.10.0-cp311.whl", "PyYAML-6.0.2-cp311.whl"})):
        assert {marker.name for marker in fetch_deps.outdated(done, known, is_all)} == expected


def check_failed_download(folder):
    """After a download that fails, the package index is asked for the addresses again."""
    deps = folder / "deps"
    write_answer(deps)
    (deps / "wheels").mkdir()
    write_program(folder / "bin/curl", "exit 22")
    path, attempts = os.environ["PATH"], fetch_deps.ATTEMPTS
    os.environ["PATH"], fetch_deps.ATTEMPTS = f"{folder}/bin:{path}", 1
    try:
        fetch_deps.download({"url": "http://127.0.0.1:1/a.whl", "sha256": ""}, deps / "wheels")
        raise AssertionError("the download did not fail")
    except SystemExit as end:
        assert "a.whl did not arrive" in end.code, end
    finally:
        os.environ["PATH"], fetch_deps.ATTEMPTS = path, attempts
    assert not (deps / "resolved.json").exists()


def check_server_without_ranges(folder):
    """A download that was interrupted begins again where the server cannot continue it."""
    for name in ("served", "wheels"):
        (folder / name).mkdir()
    (folder / "served/a.whl").write_bytes(bytes(1000))
    (folder / "wheels/a.whl.partial").write_bytes(bytes(300))
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder / "served")
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = "127.0.0.1"
    attempts, fetch_deps.ATTEMPTS = fetch_deps.ATTEMPTS, 2
    try:
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            threading.Thread(target=server.serve_forever).start()
            try:
                wheel = {"url": f"http://127.0.0.1:{server.server_port}/a.whl", "sha256": hashlib.sha256(bytes(1000)).hexdigest()}
                assert fetch_deps.download(wheel, folder / "wheels").read_bytes() == bytes(1000)
            finally:
                server.shutdown()
    finally:
        fetch_deps.ATTEMPTS = attempts


def check_moved_folder(folder):
    """In a folder that was moved, the program pip names an interpreter that does not exist."""
    (folder / "wheels").mkdir()
    write_program(folder / "pip/bin/python", f'echo "$@" >{folder}/arguments')
    pip = folder / "pip/bin/pip"
    pip.write_text("#!/no/such/folder/bin/python\n")
    pip.chmod(0o755)
    fetch_deps.download_crt(folder)
    assert (folder / "arguments").read_text().startswith("-m pip download"), (folder / "arguments").read_text()
    (folder / "pip/bin/python").unlink()
    try:
        fetch_deps.download_crt(folder)
        raise AssertionError("there is no interpreter")
    except SystemExit as end:
        assert "pip/bin/python does not exist" in end.code and "resolved.json" in end.code, end


def check_folder_of_another_user(folder):
    """After `sudo ./dev setup` the files belong to root."""
    for name in ("site", "done", "wheels"):
        (folder / name).mkdir()
    (folder / "lock").touch(0o444)
    # root may write to all files, unless it gives this privilege away.
    ordinary = ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override"] if os.geteuid() == 0 else []
    text = refusal(folder, "docs", ordinary)
    assert text.startswith(f"fetch_deps: this user has no permission for {folder}/lock; "), text
    assert text.count("\n") == 1 and f"chown -R $USER {folder}" in text, text


def check_interrupt(folder, send):
    """A signal like that of Ctrl-C must end the running downloads, and start no other ones."""
    deps, started = folder / "deps", folder / "started"
    write_answer(deps)
    write_program(folder / "bin/curl", f"echo $$ >>{started}; exec sleep 1000")
    with subprocess.Popen([sys.executable, ROOT / "tools/fetch_deps.py", deps, "docs"], start_new_session=True,
                          env=os.environ | {"PATH": f"{folder}/bin:{os.environ['PATH']}"},
                          preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) as script:
        while not started.exists() or started.read_text().count("\n") < 2:
            assert script.poll() is None
            time.sleep(0.05)
        send(script.pid, signal.SIGINT)
        try:
            assert script.wait(30) == 130, script.returncode
        finally:
            running = [pid for pid in started.read_text().split() if pathlib.Path(f"/proc/{pid}").exists()]
            for pid in running:
                os.kill(int(pid), signal.SIGKILL)
            script.kill()
    assert not running and started.read_text().count("\n") == 2, started.read_text()


def check_stopped_program():
    """A program that runs when the script ends early is ended too."""
    timer = threading.Timer(0.3, fetch_deps.stopping.set)
    timer.start()
    start = time.monotonic()
    try:
        fetch_deps.run(["sleep", "1000"], "sleep was ended")
        raise AssertionError("sleep was not ended")
    except SystemExit as end:
        assert "sleep was ended" in end.code and time.monotonic() - start < 100, end
    finally:
        timer.join()
        fetch_deps.stopping.clear()


def main():
    def in_folder(check, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            check(pathlib.Path(folder), *arguments)
    in_folder(check_uses)
    for send in (os.killpg, os.kill):  # to all programs of a terminal, and to the script alone
        in_folder(check_interrupt, send)
    in_folder(check_answer)
    in_folder(check_early_client)
    in_folder(check_packages_of_tests)
    in_folder(check_failed_download)
    in_folder(check_server_without_ranges)
    in_folder(check_moved_folder)
    in_folder(check_folder_of_another_user)
    check_stopped_program()
    print("folders keep their use, answers are whole, and an interrupt ends the script")


main()
