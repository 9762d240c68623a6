"""Trains byte-level tokenizers with Hugging Face's `tokenizers` and writes what they and tiktoken make of a text.

    reference.py FOLDER BYTES    writes into FOLDER about BYTES bytes of text.txt, and per tokenizer a folder NAME with
                                 its files and the tokens of the text as 32-bit numbers, ids.bin

The text is the same in each run on one machine: languages with and without spaces between words, source code, emoji, white
space of all kinds, every character that Unicode 14 assigns, and the texts of added tokens.

    gpt2       GPT-2's pattern; tokenizer.json, vocab.json and merges.txt; ids.bin, and the tokens of tiktoken with the same
               ranks in ordinary.bin, where <|endoftext|> is not a token
    prefix     the same tokens, with a space before each text and added tokens of both kinds
    llama      a pattern of its own as in Llama 3, and pieces that are tokens are not merged
"""

import json
import pathlib
import random
import struct
import sys
import sysconfig
import unicodedata

import tiktoken
import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, processors, trainers

LANGUAGES = [
    "The quick brown fox doesn't jump over 13 lazy dogs; they'll've gone, we're sure, and I'm told it's o'clock.",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich, straßauf, straßab.",
    "Portez ce vieux whisky au juge blond qui fume ; l'été, ça n'était pas l'œuvre d'un naïf.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю в 1999 году.",
    "Ξεσκεπάζω τὴν ψυχοφθόρα βδελυγμία. Η ώρα είναι 12:30.",
    "天地玄黃，宇宙洪荒。日月盈昃，辰宿列張。", "いろはにほへと ちりぬるを わかよたれそ つねならむ。カタカナも１２３。",
    "키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다.", "نص حكيم له سر قاطع وذو شأن عظيم مكتوب ٤٥٦.",
    "דג סקרן שט בים מאוכזב ולפתע מצא חברה.", "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण ४२।",
    "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า", "Pchnąć w tę łódź jeża lub ośm skrzyń fig.", "Tôi có thể ăn thuỷ tinh mà không hại gì.",
]
EMOJI = ["😀", "👩‍👩‍👧‍👦", "🇪🇺", "👍🏽", "❤️", "🏴󠁧󠁢󠁳󠁣󠁴󠁿", "✨", "1️⃣", "🧑🏿‍🚀"]
SPACES = [" ", "  ", "\n", "\n\n", "\r\n", "\t", "\t\t ", " \n ", "\u00a0", "\u2003", "\u3000", "\u2028", "\u0085", "\u180e", "\u200b",
          "\x00", "\x1f", "     ", "\v\f"]
ADDED = ["<|endoftext|>", "<|end", "<name>", "<name><name>", "été"]
GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
LLAMA = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def mixed_text(size):
    draw = random.Random(20)
    sources = sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    # The script's Python has the tables of Unicode 14, as PCRE2 10.42 has.
    assigned = [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
    draw.shuffle(assigned)
    parts, length, number = ["".join(assigned)], 0, 0
    parts += ["a" * 20_000, "ab" * 10_000, " " * 5_000, "\n" * 5_000, "1234567890" * 500, "'" * 500, "語" * 3_000]
    length = sum(len(part.encode()) for part in parts)
    while length < size:
        kind = draw.random()
        if kind < 0.35:
            lines = sources[number % len(sources)].read_text(errors="ignore").splitlines(keepends=True)
            number += 1
            start = draw.randrange(max(1, len(lines) - 40))
            part = "".join(lines[start:start + 40])
        elif kind < 0.8:
            part = draw.choice(SPACES).join(draw.choices(draw.choice(LANGUAGES).split(" "), k=30))
        elif kind < 0.9:
            part = "".join(draw.choices(EMOJI + SPACES, k=20))
        elif kind < 0.95:
            part = "".join(draw.choices(ADDED + SPACES + ["x"], k=8))
        else:
            part = "".join(draw.choices(assigned, k=40))
        parts.append(part + draw.choice(SPACES))
        length += len(parts[-1].encode())
    return "".join(parts)


def write_ids(path, ids):
    path.write_bytes(struct.pack(f"<{len(ids)}I", *ids))


def train(text, pre_tokenizer, size):
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, special_tokens=["<|endoftext|>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([text[i:i + 5_000] for i in range(0, min(len(text), 2_000_000), 5_000)], trainer)
    return tokenizer


def store(tokenizer, folder, text):
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    write_ids(folder / "ids.bin", tokenizer.encode(text).ids)


def main(folder, size):
    text = mixed_text(size)
    (folder / "text.txt").write_bytes(text.encode())

    tokenizer = train(text, pre_tokenizers.ByteLevel(add_prefix_space=False), 4_000)
    store(tokenizer, folder / "gpt2", text)
    tokenizer.model.save(str(folder / "gpt2"))
    byte_of = {character: byte for byte, character in enumerate(byte_characters())}
    vocabulary = json.loads((folder / "gpt2" / "vocab.json").read_text())
    ranks = {bytes(byte_of[c] for c in token): rank for token, rank in vocabulary.items() if token != "<|endoftext|>"}
    encoding = tiktoken.Encoding("gpt2", pat_str=GPT2, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 0})
    write_ids(folder / "gpt2" / "ordinary.bin", encoding.encode_ordinary(text))

    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.add_special_tokens(["<|end", "<name>", "<name>x"])
    tokenizer.add_tokens([AddedToken("<name><name>", normalized=True), AddedToken("été", normalized=True),
                          AddedToken("ame>", normalized=False)])
    store(tokenizer, folder / "prefix", text)

    tokenizer = train(text, pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA), "isolated"),
                                                     pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]), 3_000)
    tokenizer.model.ignore_merges = True
    # Without some merges, tokens are reached only because merges are ignored for whole pieces.
    rules = json.loads(tokenizer.to_str())
    rules["model"]["merges"] = [merge for i, merge in enumerate(rules["model"]["merges"]) if i % 7 != 0]
    store(tokenizers.Tokenizer.from_str(json.dumps(rules)), folder / "llama", text)


def byte_characters():
    """The characters of the bytes 0 to 255, as GPT-2's encoder.py has them."""
    own = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in own]
    return [chr(byte) if byte in own else chr(256 + others.index(byte)) for byte in range(256)]


main(pathlib.Path(sys.argv[1]), int(sys.argv[2]))
