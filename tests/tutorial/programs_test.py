#!/usr/bin/env python3
"""Runs the programs of the tutorial by the commands of the guides, in an empty folder.

    programs_test.py FOLDER_OF_PROGRAMS CLAIM
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from program_lines import PATIENCE, run, unprefixed  # noqa: E402
from unused_port import unused_port  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(sys.argv[1])
RUN = BIN / "ddpxx-run"
TOOL = BIN / "ddpxx"


def program(name):
    return BIN / "tutorial" / name


def ranks(count, name, *arguments):
    return run(RUN, "--standalone", f"--nproc-per-node={count}", program(name), *arguments)


def epoch_lines(gpu, epochs, batch_size, steps):
    return [f"[GPU{gpu}] Epoch {epoch} | Batchsize: {batch_size} | Steps: {steps}" for epoch in epochs]


def saved_lines(what, epochs, save_every, path):
    return [f"Epoch {epoch} | Training {what} saved at {path}" for epoch in epochs if epoch % save_every == 0]


def with_saves(lines, saves):
    """The lines of the epochs, each with the line of its save behind it."""
    of_epoch = {line.split()[1]: line for line in saves}
    return [one for line in lines
            for one in (line, of_epoch.get(re.search(r"Epoch (\d+)", line)[1])) if one is not None]


def losses(lines):
    return [float(match[1]) for line in lines if (match := re.match(r"Epoch: \d+, Loss: ([^,]+)", line))]


def assert_close(some, others):
    assert len(some) == len(others) > 0, (some, others)
    for one, other in zip(some, others):
        assert abs(one - other) <= 1e-5 * max(1.0, abs(other)), (some, others)


def assert_learns(values):
    """The losses at the end of ten epochs."""
    assert len(values) == 10 and values[-1] < 0.5 * values[0], values


# --- the series ---

def test_single_gpu_prints_the_lines_of_the_guide():
    expected = with_saves(epoch_lines(0, range(50), 32, 64), saved_lines("checkpoint", range(50), 10, "checkpoint.pt"))
    assert run(program("single_gpu"), "50", "10", "--batch_size", "32") == expected
    assert run(program("single_gpu")) == expected
    assert run(program("single_gpu"), "3", "2", "--batch-size=1024") == with_saves(
        epoch_lines(0, range(3), 1024, 2), saved_lines("checkpoint", range(3), 2, "checkpoint.pt"))


def test_singlegpu_takes_the_named_arguments_of_the_guide():
    expected = with_saves(epoch_lines(0, range(50), 32, 64), saved_lines("checkpoint", range(50), 10, "checkpoint.pt"))
    assert run(program("singlegpu"), "--total_epochs", "50", "--save_every", "10", "--batch_size", "32") == expected
    assert run(program("singlegpu"), "--total-epochs=2", "--save-every", "1", "--hidden-size=3")[-1] == \
        "Epoch 1 | Training checkpoint saved at checkpoint.pt"
    assert "did you mean" in run(program("singlegpu"), "--total_epoch", "50", code=2)


def test_python_loads_the_checkpoint_of_a_model_that_has_learnt():
    import torch
    run(program("single_gpu"), "50", "49")
    state = torch.load("checkpoint.pt")
    model = torch.nn.Linear(20, 1)
    model.load_state_dict({name.removeprefix("net."): tensor for name, tensor in state.items()})
    inputs = torch.rand(2048, 20)
    loss = torch.nn.functional.mse_loss(model(inputs), inputs.mean(1, keepdim=True)).item()
    assert loss < 0.03, loss  # 0.3 before training
    assert max(abs(tensor).max().item() for tensor in state.values()) > 0


def test_multigpu_spawns_its_processes_itself():
    saves = saved_lines("checkpoint", range(50), 10, "checkpoint.pt")
    lines = run(program("multigpu"), "50", "10", "--batch_size", "32", "spawn=2")
    assert sorted(lines) == sorted(epoch_lines(0, range(50), 32, 32) + epoch_lines(1, range(50), 32, 32) + saves)
    assert [line for line in lines if "[GPU1]" not in line] == with_saves(epoch_lines(0, range(50), 32, 32), saves)
    assert sorted(ranks(2, "multigpu", "2", "5")) == sorted(
        epoch_lines(0, range(2), 32, 32) + epoch_lines(1, range(2), 32, 32) + saves[:1])


def test_ranks_of_one_machine_print_their_local_ranks():
    lines = ranks(2, "multigpu_torchrun", "--total_epochs", "50", "--save_every", "10", "--batch_size", "32")
    saves = saved_lines("snapshot", range(50), 10, "snapshots")
    assert sorted(lines) == sorted(epoch_lines(0, range(50), 32, 32) + epoch_lines(1, range(50), 32, 32) + saves)
    assert [line for line in lines if "[GPU1]" not in line] == with_saves(epoch_lines(0, range(50), 32, 32), saves)


def test_a_killed_rank_resumes_from_the_snapshot():
    arguments = ["--total_epochs", "200", "--save_every", "50", "--batch_size", "256"]
    ranks(2, "multigpu_torchrun", *arguments, "training.save_dir=whole")
    command = [str(RUN), "--standalone", "--nproc-per-node=2", "--max-restarts=1", str(program("multigpu_torchrun")),
               *arguments, "training.save_dir=killed"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as launcher:
        for line in launcher.stdout:
            if "Epoch 50 | Training snapshot saved at killed" in line:
                break
        children = pathlib.Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
        os.kill(int(children[-1]), signal.SIGKILL)
        output, errors = launcher.communicate(timeout=PATIENCE)
    assert launcher.returncode == 0, errors
    lines = unprefixed(output)
    assert "Loading snapshot" in lines, output
    behind = lines[lines.index("Loading snapshot") + 1:]
    epoch = int(re.fullmatch(r"Resuming training from snapshot at Epoch (\d+)", behind[0])[1])
    assert epoch in (51, 101, 151), epoch
    assert [line for line in behind if "[GPU0]" in line] == epoch_lines(0, range(epoch, 200), 256, 4), output
    # The weights at the end are those of a run that was not killed, bit for bit.
    last = sorted(path.name for path in pathlib.Path("whole").glob("step-*"))[-1]
    assert last == sorted(path.name for path in pathlib.Path("killed").glob("step-*"))[-1]
    import torch
    states = []
    for place in ("whole", "killed"):
        run(TOOL, "snapshot", "convert", place, f"to={place}.pt", "layout=torchrun_tutorial")
        states.append(torch.load(f"{place}.pt"))
    for name, tensor in states[0]["MODEL_STATE"].items():
        assert torch.equal(tensor, states[1]["MODEL_STATE"][name]), name


def test_a_file_of_python_resumes_at_its_epoch():
    """The original's snapshot.pt, which says how many epochs were run, and not how many steps."""
    import torch
    torch.save({"MODEL_STATE": torch.nn.ModuleDict({"net": torch.nn.Linear(20, 1)}).state_dict(), "EPOCHS_RUN": 3},
               "snapshot.pt")
    run(TOOL, "snapshot", "convert", "snapshot.pt", "to=snapshots")
    for name in ("multigpu_torchrun", "multinode"):
        lines = run(program(name), "4", "10", f"training.save_dir={name}", "snapshot=snapshots")
        assert lines == ["Loading snapshot", "Resuming training from snapshot at Epoch 3", *epoch_lines(0, [3], 32, 64)], lines


def test_a_program_with_a_loop_of_its_own_saves_where_it_is_stopped():
    command = [str(RUN), "--standalone", "--nproc-per-node=2", str(program("multinode")), "--total_epochs", "1000000",
               "--save_every", "1000000", "training.save_dir=stopped"]
    with open("errors", "w") as errors, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors,
                                                         text=True) as launcher:
        output = ""
        for line in launcher.stdout:
            if "Epoch 5 |" in line and "Epoch 5 |" not in output:
                launcher.send_signal(signal.SIGTERM)
            output += line
    assert launcher.returncode == 75, (launcher.returncode, pathlib.Path("errors").read_text())
    last = max(int(number) for number in re.findall(r"Epoch (\d+) \|", output))
    resumed = ranks(2, "multinode", "--total_epochs", str(last + 2), "--save_every", "1000000",
                    "training.save_dir=stopped")
    assert "Loading snapshot" in resumed, resumed
    begins = [line for line in resumed if line.startswith("Resuming training")]
    # The stop may come after the last step of an epoch.
    assert begins in [[f"Resuming training from snapshot at Epoch {epoch}"] for epoch in (last, last + 1)], resumed


def test_programs_save_as_the_settings_of_training_say():
    def steps(place):
        return sorted(int(path.name.removeprefix("step-")) for path in pathlib.Path(place).glob("step-*"))
    often = ["2", "1", "--batch-size=256", "training.save_every=3", "snapshot.keep_last=100"]  # 8 steps an epoch
    for name in ("single_gpu", "singlegpu", "multigpu"):
        run(program(name), *often, f"training.save_dir={name}")
        assert steps(name) == [3, 6, 9, 12, 15, 16], (name, steps(name))
    for name in ("multigpu_torchrun", "multinode"):
        lines = run(program(name), *often, "training.save_every_epochs=1", f"training.save_dir={name}")
        assert steps(name) == [3, 6, 8, 9, 12, 15, 16], (name, steps(name))
        assert sum("Training snapshot saved" in line for line in lines) == 2, lines
    folder = pathlib.Path("without_a_place")
    folder.mkdir()
    run("env", "--chdir", folder, program("multinode"), *often)
    assert steps(folder / "snapshots") == [3, 6, 8, 9, 12, 15, 16], steps(folder / "snapshots")


def test_sixteen_ranks_of_two_agents_print_the_line_of_the_guide():
    port = unused_port()
    agents = [subprocess.Popen([str(word) for word in (
        RUN, "--nproc-per-node=8", "--nnodes=2", f"--node-rank={node}", "--rdzv-id=456", "--rdzv-backend=c10d",
        f"--rdzv-endpoint=127.0.0.1:{port}", program("multinode"), "50", "10")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for node in (0, 1)]
    outputs = [agent.communicate(timeout=PATIENCE) for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], outputs
    lines = [line for output, _ in outputs for line in unprefixed(output)]
    assert "[GPU11] Epoch 47 | Batchsize: 32 | Steps: 4" in unprefixed(outputs[0][0] + outputs[1][0]), outputs
    assert sorted(lines) == sorted(
        [line for rank in range(16) for line in epoch_lines(rank, range(50), 32, 4)]
        + saved_lines("snapshot", range(50), 10, "snapshots"))


def test_multinode_alone_is_one_rank():
    assert run(program("multinode"), "2", "1") == with_saves(
        epoch_lines(0, range(2), 32, 64), saved_lines("snapshot", range(2), 1, "snapshots"))
    assert run(program("multinode"), "3", "1") == [
        "Loading snapshot", "Resuming training from snapshot at Epoch 2", *epoch_lines(0, [2], 32, 64),
        "Epoch 2 | Training snapshot saved at snapshots"]


# --- one feature a program ---

def test_data_parallel_and_ddp_compute_equal_losses():
    copies = run(program("data_parallel"), "strategy.replicas=2")
    processes = ranks(2, "ddp")
    assert_learns(losses(copies))
    assert_close(losses(copies), losses(processes))
    assert copies[-1].startswith("DataParallel, Float32, 1 rank: 320 steps of 64 samples in "), copies
    assert processes[-1].startswith("DDP, Float32, 2 ranks: 320 steps of 64 samples in "), processes


def test_precision_lowers_a_scale_that_is_too_large():
    usual = ranks(2, "precision")
    assert_learns(losses(usual))
    large = run(program("precision"), "precision.scaler.initial_scale=1e9")
    scale, skipped = re.search(r"Scale: ([^,]+), Skipped: (\d+)", large[-2]).groups()
    assert float(scale) < 1e9 and int(skipped) > 0, large
    assert float(scale) == float(f"{1e9 * 0.5 ** int(skipped):g}"), large
    assert_learns(losses(large))


def test_accumulation_takes_the_steps_of_the_whole_batch():
    four = ranks(2, "accumulation")
    one = ranks(2, "accumulation", "batch_size=32", "training.accumulation_steps=1")
    assert_learns(losses(four))
    assert_close(losses(four), losses(one))


def test_recompute_takes_less_memory_for_equal_losses():
    again, kept = ranks(2, "recompute"), ranks(2, "recompute", "strategy.recompute.policy=none")
    assert_learns(losses(again))
    assert losses(again) == losses(kept), (again, kept)
    of_step = [int(re.fullmatch(r"a step takes (\d+) bytes", lines[-1])[1]) for lines in (again, kept)]
    assert of_step[0] < 0.7 * of_step[1], of_step


def states_of(lines):
    return int(re.search(r"rank 0 holds (\d+) bytes of states$", lines[-1])[1])


def test_fsdp_holds_a_part_on_each_rank():
    two, one = ranks(2, "fsdp"), run(program("fsdp"), "batch_size=64")
    assert_learns(losses(two))
    assert_close(losses(two), losses(one))
    assert states_of(two) < 0.55 * states_of(one), (two, one)


def test_join_lets_ranks_have_uneven_inputs():
    lines = sorted(ranks(3, "join"))
    for rank, line in enumerate(lines):
        assert line.startswith(f"Rank {rank} has exhausted all {5 + rank} of its inputs, and took part in {2 - rank} "
                               "more steps; its model adds up to "), lines
    assert len(lines) == 3 and len({line.split()[-1] for line in lines}) == 1, lines


def test_memory_is_as_planned():
    for arguments in ([], ["--layers", "16", "--width", "256", "--batch_size", "64"]):
        lines = ranks(2, "memory", *arguments)
        rows = {row[1].strip(): (int(row[2]), int(row[3]))
                for line in lines[1:] if (row := re.match(r"(\D+) (\d+) +(\d+)$", line))}
        assert list(rows) == ["weights", "gradients", "optimizer", "activations", "batches", "buffers", "a rank"], lines
        for kind in ("weights", "gradients", "optimizer", "activations", "batches", "a rank"):
            planned, measured = rows[kind]
            assert measured > 0 and abs(planned - measured) <= 0.1 * measured, (kind, lines)


# --- a script of Python and its port ---

def test_port_has_the_losses_of_the_python_script():
    """docs/porting.md: equal initial weights, equal batches, equal steps."""
    epochs, steps_per_epoch = 3, 64  # 4096 samples on two ranks, 32 in a batch
    ranks(2, "port", "--epochs", epochs, "--batch-size", "32", "training.metrics=rows.jsonl")
    rows = [json.loads(row) for row in pathlib.Path("rows.jsonl").read_text().splitlines()]
    of_steps = [row["loss"] for row in rows if "loss" in row]
    ours = [sum(of_steps[first:first + steps_per_epoch]) / steps_per_epoch
            for first in range(0, len(of_steps), steps_per_epoch)]
    lines = run(RUN, "--standalone", "--nproc-per-node=2", sys.executable, ROOT / "samples" / "port" / "train.py",
                "--epochs", epochs, "--batch-size", "32")
    theirs = [float(re.fullmatch(r"epoch \d+ loss (\S+)", line)[1]) for line in lines]
    assert len(theirs) == epochs and theirs[-1] < 0.5 * theirs[0], theirs
    assert_close(ours, theirs)
    run(TOOL, "snapshot", "convert", "checkpoint", "to=model.pt", "layout=state_dict")
    import torch
    python = torch.load("checkpoint.pt")["model"]
    for name, tensor in torch.load("model.pt").items():
        assert torch.allclose(tensor, python[name], rtol=1e-4, atol=1e-5), name
    # Each of the two continues with the next epoch from the other's checkpoint.
    run(TOOL, "snapshot", "convert", "checkpoint.pt", "to=from_python")
    run(TOOL, "snapshot", "convert", "checkpoint", "to=checkpoint.pt", "layout=torchvision")
    ranks(2, "port", "--epochs", epochs + 1, "--batch-size", "32", "training.save_dir=from_python",
          "training.metrics=resumed.jsonl")
    rows = [json.loads(row) for row in pathlib.Path("resumed.jsonl").read_text().splitlines()]
    resumed = [row["loss"] for row in rows if "loss" in row]
    lines = run(RUN, "--standalone", "--nproc-per-node=2", sys.executable, ROOT / "samples" / "port" / "train.py",
                "--epochs", epochs + 1, "--batch-size", "32")
    assert len(resumed) == steps_per_epoch and len(lines) == 1, (len(resumed), lines)
    assert_close([sum(resumed) / steps_per_epoch], [float(lines[0].removeprefix(f"epoch {epochs} loss "))])


# --- the pages ---

def test_the_program_of_the_start_page_names_the_line_that_is_wrong():
    good = pathlib.Path("good.csv")
    good.write_text("0.31,-0.7,2\r\n0.1,0.2,0")  # line ends of Windows, and none at the end of the file
    for content, reason in (("0.1,0.2,0\n0.1,0.2,3\n", "line 2 is not"), ("0.1,0.2,-1\n", "line 1 is not"),
                            ("0.1,0.2,0\n0.1,0.", "line 2 is not"), ("0.1;0.2;0\n", "line 1 is not"),
                            ("0.1,0.2,0,5\n", "line 1 is not"), ("", "it cannot be read or is empty")):
        pathlib.Path("bad.csv").write_text(content)
        for files in (("train=bad.csv", "validation=good.csv"), ("train=good.csv", "validation=bad.csv")):
            assert f"bad.csv: {reason}" in run(program("start"), *files, code=3), content
    assert "absent.csv: it cannot be read" in run(program("start"), "train=absent.csv", code=3)
    run(program("start"), "train=good.csv", "validation=good.csv", "batch_size=2", "training.max_epochs=1")


def test_a_file_that_one_rank_lacks_ends_both_ranks_of_the_start_page():
    port = unused_port()
    places = [pathlib.Path(name).absolute() for name in ("with", "without")]
    for place in places:
        place.mkdir()
    (places[0] / "train.csv").write_text("0.31,-0.7,2\n")
    started = [subprocess.Popen([str(program("start")), "validation=train.csv"], cwd=place, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, env=os.environ | {
                                    "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2",
                                    "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
               for rank, place in enumerate(places)]
    outputs = [process.communicate(timeout=PATIENCE) for process in started]
    assert [process.returncode for process in started] == [3, 3], outputs
    assert "train.csv: it cannot be read" in outputs[1][1], outputs


def test_the_page_shows_the_programs():
    """tests/tree/docs_test.py compares the snippets with the files."""
    page = (ROOT / "docs" / "tutorial.md").read_text()
    assert page.count("<!-- from: ") == page.count("```cpp") > 0, "a snippet is not cut from a file: <!-- from: FILE -->"
    for source in (ROOT / "samples" / "tutorial").glob("*.cpp"):
        assert f"`{source.stem}`" in page, f"docs/tutorial.md does not name {source.stem}"


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    globals()["test_" + sys.argv[2]]()
