"""A textbook beam search over the mean probabilities of several models: one hypothesis at a time,
without a cache.
"""

import math

import torch

from tests.generation_models import penalty


@torch.no_grad()
def mean_log_probabilities(models, weights, source, tokens, start):
    """Return the logarithm of the weighted mean of the models' probabilities of the next token, in
    float64.
    """
    total = sum(weights)
    mean = 0.0
    for model, weight in zip(models, weights, strict=True):
        ids, previous = torch.tensor([source]), torch.tensor([[start, *tokens]])
        logits = model(input_ids=ids, decoder_input_ids=previous, use_cache=False).logits[0, -1]
        mean = mean + weight / total * logits.double().softmax(-1)
    return mean.log().tolist()


def greedy_search(models, weights, source, start, eos, limit, alpha=0.6, penalty_type="wu"):
    """Return the score and the tokens of the most likely token at each step."""
    tokens, score = [], 0.0
    while len(tokens) < limit and tokens[-1:] != [eos]:
        row = mean_log_probabilities(models, weights, source, tokens, start)
        tokens.append(max(range(len(row)), key=row.__getitem__))
        score += row[tokens[-1]]
    return [(score / penalty(penalty_type, alpha, len(tokens)), tokens)]


def beam_search(
    models,
    weights,
    source,
    start,
    eos,
    limit,
    beams,
    alpha=0.6,
    penalty_type="wu",
    early_stopping=False,
):
    """Return the score and the tokens of the best finished hypotheses, best first."""
    running, finished = [(0.0, [])], []
    for length in range(1, limit + 1):
        candidates = []
        for score, tokens in running:
            row = mean_log_probabilities(models, weights, source, tokens, start)
            candidates += [(score + row[token], [*tokens, token]) for token in range(len(row))]
        best = sorted(candidates, reverse=True)[: 2 * beams]
        divisor = penalty(penalty_type, alpha, length)
        ended = [
            (score / divisor, tokens)
            for score, tokens in best[:beams]
            if tokens[-1] == eos or length == limit
        ]
        finished = sorted(finished + ended, reverse=True)[:beams]
        running = [(score, tokens) for score, tokens in best if tokens[-1] != eos][:beams]
        worst = finished[-1][0] if len(finished) == beams else -math.inf
        if len(finished) == beams and (early_stopping or running[0][0] / divisor <= worst):
            break
    return finished
