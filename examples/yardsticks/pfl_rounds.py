"""python pfl_rounds.py cnn|mlp ROUNDS: the yardstick job in pfl-research, in one process on one thread."""

import os
import sys
import time

os.environ.setdefault("PFL_PYTORCH_DEVICE", "cpu")

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.internal.ops import pytorch_ops
from pfl.internal.ops.selector import set_framework_module
from pfl.model.pytorch import PyTorchModel
from torch import nn
from torch.nn import functional as F

import job

kind, rounds = sys.argv[1], int(sys.argv[2])
set_framework_module(pytorch_ops)
torch.set_num_threads(1)
torch.manual_seed(0)
np.random.seed(0)
images, labels = job.examples("train")
shares = job.deal_evenly(len(images), 100)


class Learner(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = job.model(kind)

    def forward(self, images):
        return self.network(images)

    def loss(self, images, labels, eval=False):
        return F.cross_entropy(self(images), labels)

    def metrics(self, images, labels, eval=True):
        return {}


def share(client):
    indices = torch.from_numpy(shares[client])
    return Dataset(raw_data=[images[indices], labels[indices]], user_id=client)


learner = Learner()
federation = FederatedDataset(make_dataset_fn=share, user_sampler=get_user_sampler("random", list(range(100))))
begun = time.perf_counter()
FederatedAveraging().run(
    algorithm_params=NNAlgorithmParams(
        central_num_iterations=rounds, evaluation_frequency=10 * rounds, train_cohort_size=10, val_cohort_size=0
    ),
    backend=SimulatedBackend(training_data=federation, val_data=None, postprocessors=[WeightByDatapoints()]),
    model=PyTorchModel(
        learner,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(learner.parameters(), 1.0),
    ),
    model_train_params=NNTrainHyperParams(local_learning_rate=0.05, local_num_epochs=1, local_batch_size=job.BATCH),
    model_eval_params=NNEvalHyperParams(local_batch_size=500),
    callbacks=[],
)
seconds = time.perf_counter() - begun
print(f"pfl, {kind}: {seconds / rounds * 1e3:.0f} ms a round, accuracy {job.accuracy(learner, *job.examples('t10k')):.4f}")
