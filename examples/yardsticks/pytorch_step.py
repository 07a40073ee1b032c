"""python pytorch_step.py cnn|mlp BATCH: the time of a local step in PyTorch, on one thread."""

import sys
import time

import torch
from torch.nn import functional as F

import job

kind, batch = sys.argv[1], int(sys.argv[2])
torch.set_num_threads(1)
network = job.model(kind)
optimiser = torch.optim.SGD(network.parameters(), 0.01)
images, labels = torch.randn(batch, 1, 28, 28), torch.randint(10, (batch,))


def steps(count):
    for _ in range(count):
        optimiser.zero_grad()
        F.cross_entropy(network(images), labels).backward()
        optimiser.step()


count = 30 if kind == "cnn" else 300
steps(5)
begun = time.perf_counter()
steps(count)
print(f"{kind}, batch {batch}: {(time.perf_counter() - begun) / count * 1e3:.3f} ms")
