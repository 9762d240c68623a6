"""Runs a program of a test, and reads its lines without the prefixes of ddpxx-run."""
import re
import subprocess

PATIENCE = 300  # seconds; a run takes some seconds


def unprefixed(text):
    """The lines of ranks, without the prefix of ddpxx-run."""
    return [re.sub(r"^\[rank\d+\]: ", "", line) for line in text.splitlines()]


def run(*command, code=0):
    """The lines that the command prints on stdout; those on stderr in one text if it is to fail with `code`."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == code, f"{command}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return unprefixed(done.stdout) if code == 0 else done.stderr
