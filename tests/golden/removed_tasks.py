"""
Store what the pipelines of transformers 4 answer, for tiny checkpoints of the families that people
translate with.

    python tests/golden/removed_tasks.py    # with transformers 4.57.6, which has these pipelines,
    and sentencepiece

It writes a folder for each checkpoint into `tests/golden/removed_tasks`, and `answers.json`.
"""

import json
import shutil
import sys
import tempfile
import zlib
from pathlib import Path

import sentencepiece
import torch
import transformers

FOLDER = Path(__file__).parent / "removed_tasks"
TEXTS = ["A man is sleeping.", "Two dogs run", "Where is the red bird?"]
CORPUS = """\
A man is sleeping on the red bench. Two dogs run over the green grass. Where is the bird? It sings in a tree.
The child has an apple and a ball. They are playing near the water. She reads a book, and he paints a house.
Ein Mann schläft. Zwei Hunde laufen. Wo ist der Vogel? Das Kind hat einen Apfel. Sie liest ein Buch."""
SIZES = {"d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
SIZES |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8}
SIZES |= {"max_position_embeddings": 320}
T5_SIZES = {"tie_word_embeddings": False, "d_model": 8, "num_layers": 1, "num_heads": 2}
T5_SIZES |= {"d_kv": 4, "d_ff": 8, "decoder_start_token_id": 0}
SUMMARIZATION = {"prefix": "summarize: ", "max_length": 9, "num_beams": 2}
SUMMARIZATION |= {"early_stopping": True}
TRANSLATION = {"prefix": "translate English to German: ", "max_length": 8, "num_beams": 3}
T5_TASKS = {"summarization": SUMMARIZATION, "translation_en_to_de": TRANSLATION}


def fill_weights(model):
    """Give matrices normally distributed weights that depend on their names, so that the source
    decides.
    """
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
            if parameter.dim() == 2:
                values = torch.randn(parameter.shape, generator=generator)
                parameter.copy_(values * 0.6)
            else:
                parameter.fill_(float(name.endswith("weight")))
    return model.eval()


def train_sentencepiece(folder, **options):
    """Train a model of 80 pieces on [`CORPUS`], and return its file, which names no file of this
    machine.
    """
    options = {"vocab_size": 80, "normalization_rule_name": "identity"} | options
    path = folder / "spm.model"
    with path.open("wb") as file:
        options |= {"sentence_iterator": iter(CORPUS.splitlines()), "model_writer": file}
        sentencepiece.SentencePieceTrainer.train(**options, minloglevel=2)
    return path


def write_vocabulary(folder, tokens):
    """Write the numbers of tokens, and return the path of the file."""
    path = folder / "vocab.json"
    path.write_text(json.dumps({token: number for number, token in enumerate(tokens)}))
    return str(path)


def marian(folder):
    spm = train_sentencepiece(folder)
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(spm))
    vocabulary = ["</s>", "<unk>", *map(pieces.id_to_piece, range(3, 80)), "<pad>"]
    vocab = write_vocabulary(folder, vocabulary)
    files = {"source_spm": str(spm), "target_spm": str(spm), "vocab": vocab}
    tokenizer = transformers.MarianTokenizer(**files, source_lang="en", target_lang="de")
    pad = len(vocabulary) - 1
    special = {"pad_token_id": pad, "eos_token_id": 0, "decoder_start_token_id": pad}
    special |= {"forced_eos_token_id": 0}
    config = transformers.MarianConfig(vocab_size=len(vocabulary), **special, **SIZES)
    model = transformers.MarianMTModel(config)
    model.generation_config.update(num_beams=4, max_length=16, bad_words_ids=[[pad]])
    return model, tokenizer


def m2m_100(folder):
    spm = train_sentencepiece(folder, pad_id=1, unk_id=3, bos_id=0, eos_id=2)
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(spm))
    vocab = write_vocabulary(folder, map(pieces.id_to_piece, range(80)))
    languages = {"src_lang": "en", "tgt_lang": "de"}
    tokenizer = transformers.M2M100Tokenizer(vocab, str(spm), **languages)
    size = max(tokenizer.lang_token_to_id.values()) + 9
    config = transformers.M2M100Config(vocab_size=size, **SIZES)
    model = transformers.M2M100ForConditionalGeneration(config)
    model.generation_config.update(max_length=14, num_beams=2)
    return model, tokenizer


def nllb(folder):
    tokenizer = transformers.NllbTokenizer(str(train_sentencepiece(folder)))
    options = {"vocab_size": len(tokenizer), "decoder_start_token_id": 2}
    config = transformers.M2M100Config(**options, **SIZES)
    return transformers.M2M100ForConditionalGeneration(config), tokenizer


def mbart(folder, tokenizer_class=transformers.MBartTokenizer):
    spm = train_sentencepiece(folder)
    tokenizer = tokenizer_class(str(spm), src_lang="en_XX", tgt_lang="de_DE")
    options = {"vocab_size": len(tokenizer), "forced_eos_token_id": 2}
    config = transformers.MBartConfig(**options, **SIZES)
    if tokenizer_class is transformers.MBart50Tokenizer:
        config.decoder_start_token_id = 2
    model = transformers.MBartForConditionalGeneration(config)
    model.generation_config.update(max_length=12, num_beams=3)
    return model, tokenizer


def mbart_50(folder):
    return mbart(folder, transformers.MBart50Tokenizer)


def bart(folder, **changes):
    letters = sorted(filter(str.isascii, {*CORPUS} - {*" \n"})) + ["Ġ"]
    vocabulary = ["<s>", "<pad>", "</s>", "<unk>", *letters]
    vocabulary += ["Ġa", "th", "the", "Ġt", "<mask>"]
    vocab, merges = write_vocabulary(folder, vocabulary), folder / "merges.txt"
    merges.write_text("#version: 0.2\nĠ a\nt h\nth e\nĠ t\n")
    tokenizer = transformers.BartTokenizer(vocab, str(merges))
    config = transformers.BartConfig(vocab_size=len(vocabulary), **(SIZES | changes))
    model = transformers.BartForConditionalGeneration(config)
    model.generation_config.update(forced_bos_token_id=0)
    return model, tokenizer


def bart_with_tasks(folder):
    options = {"length_penalty": 2.0, "max_length": 11, "min_length": 5, "num_beams": 2}
    return bart(folder, task_specific_params={"summarization": options}, prefix=" ")


def t5(folder, **changes):
    spm = train_sentencepiece(folder, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    tokenizer = transformers.T5Tokenizer(str(spm), extra_ids=4, legacy=False)
    options = T5_SIZES | {"task_specific_params": T5_TASKS} | changes
    config = transformers.T5Config(vocab_size=len(tokenizer) + 2, **options)
    return transformers.T5ForConditionalGeneration(config), tokenizer


def t5_v1_1(folder):
    changes = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    return t5(folder, **changes, task_specific_params=None)


def madlad(folder):
    model, tokenizer = t5_v1_1(folder)
    tokenizer.add_tokens(["<2de>", "<2en>"])
    model.resize_token_embeddings(len(tokenizer) + 2)
    return model, tokenizer


def pegasus(folder):
    spm = train_sentencepiece(folder, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    masks = {"mask_token_sent": "<mask_1>", "mask_token": "<mask_2>"}
    tokenizer = transformers.PegasusTokenizer(str(spm), offset=6, **masks)
    config = transformers.PegasusConfig(vocab_size=len(tokenizer), **SIZES)
    model = transformers.PegasusForConditionalGeneration(config)
    model.generation_config.update(max_length=15, num_beams=2, length_penalty=0.6)
    return model, tokenizer


def marian_folder_of_ours(folder):
    """Build a checkpoint like those that `convert --target_format marian` writes: one
    `tokenizer.json`.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    letters = sorted({*CORPUS.replace(" ", "▁")} - {"\n"})
    pieces = ["<unk>", "</s>", *letters, "▁the", "▁is", "en", "<pad>"]
    scores = [(piece, -float(number % 7)) for number, piece in enumerate(pieces)]
    tokenizer = Tokenizer(models.Unigram(scores, 0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    template = {"single": "$A </s>", "special_tokens": [("</s>", 1)]}
    tokenizer.post_processor = processors.TemplateProcessing(**template)
    special = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)
    pad = len(pieces) - 1
    ids = {"pad_token_id": pad, "eos_token_id": 1, "decoder_start_token_id": pad}
    config = transformers.MarianConfig(vocab_size=len(pieces), **ids, **SIZES)
    model = transformers.MarianMTModel(config)
    model.generation_config.update(num_beams=4, length_penalty=0.6, max_length=30)
    return model, wrapped


BUILDERS = [marian, marian_folder_of_ours, m2m_100, nllb, mbart, mbart_50]
BUILDERS += [bart, bart_with_tasks, t5, t5_v1_1, madlad, pegasus]
CHECKPOINTS = {build.__name__: build for build in BUILDERS}
ALL_TASKS = ("translation", "translation_en_to_de", "summarization", "text2text-generation")
LANGUAGES = {"m2m_100": ("en", "de"), "nllb": ("eng_Latn", "deu_Latn")}
LANGUAGES |= dict.fromkeys(("mbart", "mbart_50"), ("en_XX", "de_DE"))


def calls_of(name):
    """Yield the task, the options of the constructor, the inputs and the options of each call of a
    checkpoint.
    """
    pair = LANGUAGES.get(name, ())
    languages = dict(zip(("src_lang", "tgt_lang"), pair, strict=False))
    two_beams = {"max_new_tokens": 6, "num_beams": 2, "num_return_sequences": 2}
    greedy = {"num_beams": 1, "max_new_tokens": 7, "clean_up_tokenization_spaces": True}
    batches = {"do_sample": False, "max_new_tokens": 4}
    texts = [f"<2de> {text}" for text in TEXTS] if name == "madlad" else TEXTS
    for task in ALL_TASKS:
        options = languages if task.startswith("translation") else {}
        yield task, options, texts[0], {"max_new_tokens": 12}
        yield task, options, texts, two_beams
        yield task, {}, texts[:2], options | {"max_length": 10, "truncation": True}
        yield task, options, texts[1], {"max_new_tokens": 5, "return_tensors": True}
        yield task, options, texts, greedy
        yield task, options | {"batch_size": 2}, texts, batches
        yield task, options, [], {}


def answer(folder, call):
    """Return the answer of a pipeline as JSON types, or the name of its error."""
    task, constructor, inputs, options = call
    try:
        constructor = {"model": str(folder), "device": "cpu"} | constructor
        translate = transformers.pipeline(task, **constructor)
        answers = translate(inputs, **options)
    except Exception as error:  # whatever a user of transformers 4 sees
        return type(error).__name__
    return json.loads(json.dumps(answers, default=lambda tensor: tensor.tolist()))


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    shutil.rmtree(FOLDER, ignore_errors=True)
    answers = {}
    for name, build in CHECKPOINTS.items():
        with tempfile.TemporaryDirectory() as scratch:
            model, tokenizer = build(Path(scratch))
            tokenizer.save_pretrained(FOLDER / name)
            fill_weights(model).save_pretrained(FOLDER / name)
            calls = [*calls_of(name)]
            answers[name] = [[list(call), answer(FOLDER / name, call)] for call in calls]
    stored = {"transformers": transformers.__version__, "answers": answers}
    text = json.dumps(stored, ensure_ascii=False)
    (FOLDER / "answers.json").write_text(text.replace("]], [[", "]],\n[[") + "\n")


if __name__ == "__main__":
    sys.exit(main())
