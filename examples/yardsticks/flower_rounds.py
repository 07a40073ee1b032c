"""python flower_rounds.py cnn|mlp|logistic-regression ROUNDS: the job in Flower on Ray, with two workers."""

import os
import sys
import time

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"

import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

import job

kind, rounds = sys.argv[1], int(sys.argv[2])
is_regression = kind == "logistic-regression"
clients, learning_rate, every = (1000, 0.03, 20) if is_regression else (100, 0.05, rounds)
client, server = ClientApp(), ServerApp()
held, outcome = {}, {}


def data():
    """The training examples and how they are dealt, read once in each process."""
    if not held:
        images, labels = job.examples("train")
        if is_regression:
            shares = job.deal_by_power_law(labels.numpy(), clients, 0.65)
        else:
            shares = job.deal_evenly(len(images), clients)
        held.update(images=images, labels=labels, shares=shares)
    return held


@client.train()
def train(message, context):
    torch.set_num_threads(1)
    mine = torch.from_numpy(data()["shares"][context.node_config["partition-id"]])
    network = job.model(kind)
    network.load_state_dict(message.content["arrays"].to_torch_state_dict())
    job.train(network, held["images"][mine], held["labels"][mine], learning_rate)
    content = {
        "arrays": ArrayRecord(network.state_dict()),
        "metrics": MetricRecord({"num-examples": max(len(mine), 1)}),
    }
    return Message(content=RecordDict(content), reply_to=message)


@server.main()
def main(grid, context):
    torch.manual_seed(0)
    network, test = job.model(kind), job.examples("t10k")

    def evaluate(round, arrays):
        if round % every or not round:
            return None
        begun = time.perf_counter()
        network.load_state_dict(arrays.to_torch_state_dict())
        outcome["accuracy"] = job.accuracy(network, *test)
        outcome["evaluation"] = outcome.get("evaluation", 0.0) + time.perf_counter() - begun
        return MetricRecord({"accuracy": outcome["accuracy"]})

    strategy = FedAvg(
        fraction_train=10 / clients, fraction_evaluate=0.0, min_available_nodes=clients, min_train_nodes=10
    )
    begun = time.perf_counter()
    strategy.start(
        grid=grid, initial_arrays=ArrayRecord(network.state_dict()), num_rounds=rounds, evaluate_fn=evaluate
    )
    outcome["seconds"] = time.perf_counter() - begun


run_simulation(
    server_app=server,
    client_app=client,
    num_supernodes=clients,
    backend_config={
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        "init_args": {"num_cpus": 2, "include_dashboard": False},
    },
)
training = outcome["seconds"] - outcome["evaluation"]
print(
    f"flower, {kind}: {training / rounds * 1e3:.0f} ms a round without evaluation, "
    f"{outcome['seconds']:.1f} s in all, accuracy {outcome['accuracy']:.4f}"
)
