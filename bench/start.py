"""Start-up: from starting the launcher to the first completed optimizer step. W=2, gpt-nano, Gloo."""
import protocol

GOAL = 3.5
SETTINGS = ["data.path=/usr/include/c++", "data.max_bytes=1000000", "training.max_steps=1"]


def first_step(command):
    run = protocol.run(command)
    run.value = next(seconds for seconds, text in run.lines if "step 1" in text)
    return run


bench = protocol.Bench(__doc__, fewest=15)
bench.check_noise(lambda: first_step(protocol.ours(SETTINGS)))
bench.compare("python", lambda: first_step(protocol.ours(SETTINGS)), lambda: first_step(protocol.peer(SETTINGS)), "s",
              GOAL)
