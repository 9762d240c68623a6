#!/usr/bin/env python3
"""Runs minGPT's projects, in an empty folder.

    projects_test.py FOLDER_OF_PROGRAMS CLAIM
"""
import os
import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from program_lines import run  # noqa: E402

BIN = pathlib.Path(sys.argv[1])


def project(name, *arguments, ranks=1, code=0):
    launcher = [BIN / "ddpxx-run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []
    return run(*launcher, BIN / "projects" / name, *arguments, code=code)


def losses(lines, first=10):
    """The losses of the lines of steps, each tenth of which has one, from the step `first` on."""
    found = [re.fullmatch(r"iter_dt \d+\.\d\dms; iter (\d+): train loss (\d+\.\d{5})", line) for line in lines]
    steps = [int(match[1]) for match in found if match]
    assert steps and steps == list(range(first, steps[-1] + 1, 10)), lines
    return [float(match[2]) for match in found if match]


def scores(lines, part):
    """For each score of the part: how many sums are right, and of how many."""
    found = [re.fullmatch(part + r" final score: (\d+)/(\d+) = (\d+\.\d\d)% correct", line) for line in lines]
    for match in filter(None, found):
        assert abs(100 * int(match[1]) / int(match[2]) - float(match[3])) < 0.006, match
    return [(int(match[1]), int(match[2])) for match in found if match]


def test_adder_learns_the_sums_that_it_sees():
    lines = project("adder", "--data.ndigit=1", "--trainer.max_iters=1000", "--model.dropout=0", "score_every=400")
    assert losses(lines)[-1] < 0.3 * losses(lines)[0], lines
    seen, unseen = scores(lines, "train"), scores(lines, "test")
    assert [of for _, of in seen] == [80] * 3 and [of for _, of in unseen] == [20] * 3, lines
    assert seen[-1][0] >= 76, lines


def test_adder_has_the_parts_of_mingpt():
    import torch  # takes seconds, and the other tests do not use it
    lines = project("adder", "--data.ndigit=2", "--trainer.max_iters=10", "--model.n_layer=1")
    order = torch.randperm(10_000, generator=torch.Generator().manual_seed(1337))
    held_out = {divmod(int(number), 100) for number in order[:500]}
    wrong = [re.fullmatch(r"GPT claims that (\d+) \+ (\d+) = (\d+) but gt is (\d+)", line) for line in lines]
    wrong = [tuple(map(int, match.groups())) for match in wrong if match]
    assert len(wrong) == 10, lines  # five of each part; after ten steps nearly all sums are wrong
    assert all(a + b == sum_ and answer != sum_ for a, b, answer, sum_ in wrong), lines
    assert not any((a, b) in held_out for a, b, _, _ in wrong[:5]), wrong
    assert all((a, b) in held_out for a, b, _, _ in wrong[5:]), wrong
    assert [of for _, of in scores(lines, "train")] == [9500] and [of for _, of in scores(lines, "test")] == [500], lines


def test_adder_scores_the_first_sums_of_three_digits_on_two_ranks():
    lines = project("adder", "--data.ndigit=3", "--trainer.max_iters=10", "--model.n_layer=1", ranks=2)
    assert [of for _, of in scores(lines, "train")] == [500] and [of for _, of in scores(lines, "test")] == [500], lines
    error = project("adder", "--data.ndigit=4", code=2)
    assert "allowed: 1 to 3" in error, error


def test_adder_goes_on_from_its_snapshot():
    arguments = ["--data.ndigit=1", "--system.work_dir=out", "--model.n_layer=1"]
    before = losses(project("adder", *arguments, "--trainer.max_iters=20"))
    after = losses(project("adder", *arguments, "--trainer.max_iters=40"), first=30)
    whole = losses(project("adder", "--data.ndigit=1", "--model.n_layer=1", "--trainer.max_iters=40"))
    assert len(whole) == 4 and whole == before + after, (whole, before, after)


def test_chargpt_continues_the_prompt_of_mingpt():
    pathlib.Path("input.txt").write_text("O God, O God! how weary, stale, flat and unprofitable\nseem to me\n" * 40)
    size = ["--model.model_type=gpt-nano", "data.block_size=16"]
    lines = project("chargpt", *size, "--trainer.max_iters=50", "sample_every=30")
    assert losses(lines)[-1] < losses(lines)[0], lines
    texts = "\n".join(line for line in lines if not line.startswith("iter_dt"))
    begins = [match.start() for match in re.finditer("O God, O God!", texts)]
    assert len(begins) >= 2 and begins[0] == 0, texts
    assert len(texts) == 2 * 513 + 1, texts  # prompt and 500 characters, after step 30 and at the end
    often = project("chargpt", *size, "--trainer.max_iters=50", "sample_every=7")
    assert losses(often) == losses(lines), "the texts take random numbers of the training"
    assert len(losses(project("chargpt", *size, "--trainer.max_iters=20", ranks=2))) == 2
    error = project("chargpt", *size, "generate.prompt=Hamlet?", code=3)
    assert "the character 'H' does not occur in the training text" in error, error


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    globals()["test_" + sys.argv[2]]()
