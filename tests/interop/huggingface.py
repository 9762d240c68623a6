"""Hugging Face's GPT-2 as the tests of folders need it.

    huggingface.py write FOLDER      writes tiny models of random weights into FOLDER/NAME: tied, shards (in several files),
                                     untied, torch (pytorch_model.bin) and bare (without a head)
    huggingface.py logits MODEL FILE writes the logits of the model in the folder MODEL into FILE.safetensors, with the token
                                     ids for which they are
"""
import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from transformers import GPT2Config, GPT2LMHeadModel, GPT2Model  # noqa: E402
from transformers.utils import logging  # noqa: E402

logging.disable_progress_bar()


def config(**other):
    return GPT2Config(vocab_size=300, n_positions=24, n_embd=32, n_layer=2, n_head=4, bos_token_id=None, eos_token_id=None,
                      **other)


def random_model(settings, kind=GPT2LMHeadModel):
    model = kind(settings)
    for parameter in model.parameters():  # biases and norms too: their initial values are 0 and 1
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def write(folder):
    torch.manual_seed(5)
    random_model(config()).save_pretrained(folder / "tied")
    random_model(config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)).save_pretrained(folder / "shards",
                                                                                           max_shard_size="60KB")
    random_model(config(tie_word_embeddings=False, activation_function="gelu_pytorch_tanh")).save_pretrained(folder / "untied")
    random_model(config(), GPT2Model).save_pretrained(folder / "bare")
    old = random_model(config(n_inner=128))
    (folder / "torch").mkdir()
    old.config.save_pretrained(folder / "torch")
    torch.save(old.state_dict(), folder / "torch" / "pytorch_model.bin")
    for name in ("tied", "shards", "untied", "bare", "torch"):
        write_logits(folder / name, folder / name / "logits.safetensors")
    assert (folder / "shards" / "model.safetensors.index.json").exists()


def write_logits(folder, path):
    model, report = GPT2LMHeadModel.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    ids = torch.arange(48).reshape(2, 24) * 37 % model.config.vocab_size
    with torch.no_grad():
        save_file({"ids": ids, "logits": model.eval()(ids).logits.contiguous()}, path)


if sys.argv[1] == "write":
    write(Path(sys.argv[2]))
else:
    write_logits(Path(sys.argv[2]), Path(sys.argv[3]))
