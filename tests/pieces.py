"""Small SentencePiece models."""

import sentencepiece


def train_pieces(prefix, sentences, vocab_size=40, **options):
    """Write `PREFIX.model`, trained on sentences, and return its pieces in the order of their
    ids.
    """
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_prefix=str(prefix),
        vocab_size=vocab_size,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    model = sentencepiece.SentencePieceProcessor(model_file=f"{prefix}.model")
    return [model.id_to_piece(index) for index in range(len(model))]
