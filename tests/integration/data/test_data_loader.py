"""The loader of micro-batches: the same steps with any number of workers, from wherever it
resumes.
"""

import os
import pickle
import signal
import time
from contextlib import closing
from itertools import islice

import datasets
import numpy as np
import psutil
import pytest
import torch

from tests.corpora import FreshCorpus, LengthsCorpus
from tests.prepared_corpora import write_prepared_lengths
from tests.sweeps import rare
from vanilla_transformer.data.batch_sampler import PlannedBatch, TokenBudgetBatchSampler
from vanilla_transformer.data.batches import BatchShape, TokenCounts
from vanilla_transformer.data.data_loader import MicroBatchLoader, _Steps, report_lost_workers
from vanilla_transformer.data.tokenized_corpus import TokenTable
from vanilla_transformer.data.windows import PreparedCorpus

LENGTHS = [1 + number * 7 % 11 for number in range(40)]


def loader(corpus, num_workers, **changes):
    options = {"max_tokens": 40, "seed": 0, "accumulation": 2} | changes
    sampler = TokenBudgetBatchSampler(corpus, **options)
    return MicroBatchLoader(sampler, pad_token_id=0, num_workers=num_workers)


def take(batches, count):
    """Return the micro-batches of `count` steps as plain values, and end the workers."""
    with closing(iter(batches)) as steps:
        return [*map(step_as_values, islice(steps, count))]


def step_as_values(step):
    return [as_values(batch) for batch in step]


def as_values(batch):
    tensors = {name: tensor.tolist() for name, tensor in batch.tensors.items()}
    return tensors, batch.pairs.tolist(), batch.counts, batch.step_target_tokens


@pytest.mark.parametrize("corpus", [LengthsCorpus, FreshCorpus])
@pytest.mark.parametrize("num_workers", [rare(1), 2])
def test_micro_batch_loader_gives_the_same_steps_with_workers(corpus, num_workers):
    steps_per_epoch = loader(corpus(LENGTHS), 0).position.steps_per_epoch
    count = 2 * steps_per_epoch + 3  # into a third epoch
    expected, batches = loader(corpus(LENGTHS), 0), loader(corpus(LENGTHS), num_workers)
    assert take(batches, count) == take(expected, count)
    assert batches.position == expected.position and batches.position.epoch == 2


def test_micro_batch_loader_gives_the_same_steps_of_windows_with_workers(tmp_path):
    manifest = write_prepared_lengths(tmp_path, LENGTHS, shards=4)
    corpora = [PreparedCorpus(tmp_path, manifest, 0, window_shards=2) for _ in range(2)]
    expected, batches = loader(corpora[0], 0), loader(corpora[1], 1)
    assert take(batches, 12) == take(expected, 12)
    assert batches.position == expected.position
    assert (batches.position.epoch, batches.position.window) > (0, 1)


def test_micro_batch_loader_reads_the_pairs_it_names():
    for batch, *_ in islice(loader(FreshCorpus(LENGTHS), 0), 12):
        assert batch.tensors["input_ids"][:, 0].tolist() == batch.pairs.tolist()
        lengths = batch.tensors["attention_mask"].sum(dim=1)
        assert lengths.tolist() == [LENGTHS[number] for number in batch.pairs]
        source, target = batch.tensors["attention_mask"], batch.tensors["labels"] != -100
        counts = (int(source.sum()), int(target.sum()), source.numel() + target.numel())
        assert batch.counts == counts


@pytest.mark.parametrize("corpus", [LengthsCorpus, FreshCorpus])
@pytest.mark.parametrize("num_workers", [rare(0), 2])
def test_micro_batch_loader_resumes_after_the_steps_it_returned(corpus, num_workers):
    straight = take(loader(corpus(LENGTHS), 0), 16)
    for done in (0, 3, loader(corpus(LENGTHS), 0).position.steps_per_epoch):
        stopped = loader(corpus(LENGTHS), num_workers)
        resumed = loader(corpus(LENGTHS), num_workers)
        take(stopped, done)
        resumed.load_state_dict(stopped.state_dict())
        assert take(resumed, 4) == straight[done : done + 4]


def test_micro_batch_loader_iterates_again_without_the_prepared_steps():
    straight = take(loader(LengthsCorpus(LENGTHS), 0), 6)
    batches = loader(LengthsCorpus(LENGTHS), 1)
    assert take(batches, 2) + take(batches, 1) + take(batches, 3) == straight


def test_micro_batch_loader_keeps_pairs_when_processes_change():
    batches = loader(LengthsCorpus(LENGTHS), 1)
    seen = take(batches, 2)
    options = {"accumulation": 1, "num_replicas": 3}
    ranks = [loader(LengthsCorpus(LENGTHS), 1, **options, rank=rank) for rank in range(3)]
    for rank in ranks:
        rank.load_state_dict(batches.state_dict())
        seen += take(rank, rank.position.steps_per_epoch - 2)
    numbers = []
    for step in seen:
        for _, pairs, *_ in step:
            numbers += pairs
    assert len(numbers) == len(set(numbers)) and len(LENGTHS) - len(numbers) < 3


def test_micro_batch_loader_leaves_the_global_generator_alone():
    torch.manual_seed(1)
    expected = torch.get_rng_state()
    take(loader(LengthsCorpus(LENGTHS), 1), 2)
    assert torch.equal(torch.get_rng_state(), expected)


def workers():
    children = psutil.Process().children()
    return [child for child in children if child.name() == "pt_data_worker"]


def test_micro_batch_loader_workers_survive_signals():
    """Send signals as all processes get them."""
    expected = take(loader(LengthsCorpus(LENGTHS), 0), 20)
    with closing(iter(loader(LengthsCorpus(LENGTHS), 1))) as steps:
        values = [step_as_values(next(steps))]
        (worker,) = workers()
        worker.send_signal(signal.SIGINT)
        send_from_another_process(signal.SIGTERM, worker.pid)
        values += map(step_as_values, islice(steps, 19))
        assert worker.is_running()
    assert values == expected and not workers()


def send_from_another_process(number, pid):
    child = os.fork()
    if not child:
        os.kill(pid, number)
        os._exit(0)
    os.waitpid(child, 0)


def test_micro_batch_loader_reports_a_killed_worker():
    batches = loader(LengthsCorpus(LENGTHS), 2)
    message = r"DataLoader worker \(pid.*\. Resume\."
    lost = pytest.raises(ChildProcessError, match=message)
    with lost, report_lost_workers("Resume."), closing(iter(batches)) as steps:
        next(steps)
        workers()[0].kill()
        for _ in islice(steps, 10_000):
            pass
    assert not workers()


def test_report_lost_workers_passes_other_errors_on():
    out_of_memory = pytest.raises(RuntimeError, match="out of memory")
    with out_of_memory, report_lost_workers("Resume."):
        raise RuntimeError("out of memory")


def test_micro_batch_loader_workers_end_with_their_parent():
    """A worker that outlived a killed run would hold the lock of its folder."""
    read_end, write_end = os.pipe()
    parent = os.fork()
    if not parent:
        steps = iter(loader(LengthsCorpus(LENGTHS), 1))
        next(steps)
        os.write(write_end, str(workers()[0].pid).encode())
        os.kill(os.getpid(), signal.SIGKILL)
    worker = int(os.read(read_end, 20))
    os.waitpid(parent, 0)
    deadline = time.monotonic() + 2
    while is_alive(worker) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_alive(worker)


def is_alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("on_disk", [False, True])
def test_micro_batch_loader_steps_can_be_sent(tmp_path, on_disk):
    """As on macOS, where workers are not forks. Tokens in a file are not sent."""
    table = LengthsCorpus([40] * 200).pairs.table
    if on_disk:
        table.dataset.save_to_disk(tmp_path)
        table = TokenTable(datasets.load_from_disk(tmp_path))
    slots = torch.empty(1, 1920, dtype=torch.uint8)
    steps = _Steps(table, 0, slots, pad_to_multiple_of=1)
    sent = pickle.dumps(steps)
    rows, shape = np.array([3, 1]), BatchShape(2, 40, 40)
    batch = PlannedBatch(rows, rows, shape, None, TokenCounts(), 80)
    (expected,) = steps[0, [batch]].tensors()
    received = pickle.loads(sent)
    (tensors,) = pickle.loads(pickle.dumps(received[0, [batch]])).tensors()
    assert torch.equal(received.slots, steps.slots)
    assert tensors.keys() == expected.keys()
    for name, tensor in tensors.items():
        assert torch.equal(tensor, expected[name]) and tensor.numel() == 80
    assert (len(sent) < 10_000) == on_disk
