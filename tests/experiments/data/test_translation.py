"""The batches of a translation data set."""

from tests.experiments.data.support import chosen, ready, trainer


def test_measuring_takes_each_pair_once_the_shortest_first() -> None:
    data = ready("copy", batch_size=60)
    for split, loader in zip(("dev", "test"), data.val_dataloader(), strict=True):
        order = [index for batch in chosen(list(loader)) for index in batch]
        assert (getattr(data.data, split).sources.lengths[order].diff() >= 0).all(), split
        by_process = []
        for process in range(2):
            data.trainer = trainer(world_size=2, global_rank=process)
            by_process += [
                index for batch in data.val_dataloader()[split == "test"] for index in batch.indices.tolist()
            ]
        assert sorted(by_process) == sorted(order) == list(range(20)), split


def test_a_process_without_examples_to_measure_reads_an_empty_batch() -> None:
    data = ready("copy", batch_size=60)
    data.trainer = trainer(world_size=32, global_rank=31)  # of 20 pairs
    for loader in data.val_dataloader():
        assert [(batch.inputs.shape, batch.targets.shape) for batch in loader] == [((0, 0), (0, 0))]
