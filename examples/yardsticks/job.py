"""The yardstick job in PyTorch: models, MNIST from its IDX files, local training, accuracy."""

import os
import pathlib

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

FOLDER = pathlib.Path(os.environ.get("MNIST_DIR", "datasets/mnist"))
BATCH = 10


def read(name):
    """One IDX file: a magic number whose last byte counts the dimensions, the dimensions, the bytes."""
    raw = (FOLDER / name).read_bytes()
    dimensions = np.frombuffer(raw, ">u4", raw[3], 4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(dimensions)


def examples(prefix):
    images = torch.from_numpy(read(f"{prefix}-images-idx3-ubyte").astype(np.float32) / 255)
    return images[:, None], torch.from_numpy(read(f"{prefix}-labels-idx1-ubyte").astype(np.int64))


def model(kind):
    if kind == "cnn":
        return nn.Sequential(
            nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 10),
        )
    if kind == "mlp":
        return nn.Sequential(
            nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10)
        )
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))


def deal_evenly(count, clients):
    return np.array_split(np.random.default_rng(0).permutation(count), clients)


def deal_by_power_law(labels, clients, exponent):
    """Client k holds the digits k and k+1 (modulo 10), in proportion to a weight that falls with a random rank."""
    draw = np.random.default_rng(0)
    weights = draw.permutation(np.arange(1.0, clients + 1) ** -exponent)
    shares = [[] for _ in range(clients)]
    for digit in range(10):
        holders = [client for client in range(clients) if digit in (client % 10, (client + 1) % 10)]
        of_digit = draw.permutation(np.flatnonzero(labels == digit))
        ends = np.cumsum(weights[holders]) / weights[holders].sum() * len(of_digit)
        for client, part in zip(holders, np.split(of_digit, ends.astype(int)[:-1])):
            shares[client].extend(part.tolist())
    return [np.array(share, dtype=np.int64) for share in shares]


def train(network, images, labels, learning_rate):
    """An epoch of plain SGD."""
    optimiser = torch.optim.SGD(network.parameters(), learning_rate)
    for batch in torch.randperm(len(images)).split(BATCH):
        optimiser.zero_grad()
        F.cross_entropy(network(images[batch]), labels[batch]).backward()
        optimiser.step()


@torch.no_grad()
def accuracy(network, images, labels):
    right = sum((network(x).argmax(1) == y).sum().item() for x, y in zip(images.split(500), labels.split(500)))
    return right / len(images)
