"""What a client needs for each cut of the McMahan CNN, against training all of it: parameters, bytes that travel, its
processor's time for a step, and the most memory that its process holds. Prints the table of docs/split-learning.md. Needs
Python 3.9 or later on a Unix system.

    cargo build --release && python3 examples/cuts.py
"""

import argparse
import json
import os
import pathlib
import subprocess
import tempfile

# Layers of the client, and what they are.
CUTS = {None: "the whole model", 1: "first convolution", 3: "first block", 6: "second block", 9: "all but the last layer"}
PORT = 44351

DESCRIPTION = """
rounds = 1
clients = 1
data = {{ source = "fashion-mnist-small" }}
model = {{ preset = "mcmahan-cnn" }}
training = {{ steps = {steps}, batch_size = 10, optimiser = {{ kind = "sgd", learning_rate = 0.01 }} }}
evaluation = {{ every = 1000 }}
"""
SPLIT = """
[split]
method = {{ kind = "parallel" }}
cut = {cut}
"""


def client(selvedge, cut, steps):
    """Of a client's process, seconds of processor time and the most memory, in bytes; and the round's record."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        text = DESCRIPTION.format(steps=steps) + (SPLIT.format(cut=cut) if cut else "")
        (folder / "run.toml").write_text(text)
        quiet = {"cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run([selvedge, "certs", "new", "certs"], check=True, **quiet)
        subprocess.run([selvedge, "certs", "issue", "certs", "client-0"], check=True, **quiet)
        coordinator = [selvedge, "coordinator", "run.toml", "--certs", "certs", "--listen", f"127.0.0.1:{PORT}", "--quiet"]
        coordinator = subprocess.Popen([*coordinator, "--out", "served"], **quiet)
        agent = [selvedge, "client", f"127.0.0.1:{PORT}", "--name", "client-0", "--deal", "run.toml", "--quiet"]
        agent = subprocess.Popen(agent, **quiet)
        _, status, usage = os.wait4(agent.pid, 0)
        agent.returncode = os.waitstatus_to_exitcode(status)
        if coordinator.wait() or agent.returncode:
            raise SystemExit("the run over the network failed")
        record = json.loads((folder / "served" / "rounds.jsonl").read_text())
        return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, record


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--selvedge", type=pathlib.Path, default="target/release/selvedge", help="the program")
    parser.add_argument("--steps", type=int, nargs=2, default=[100, 500], help="steps of the shorter and of the longer run")
    arguments = parser.parse_args()
    selvedge = arguments.selvedge.resolve()
    few, many = arguments.steps
    print("| the client has | `cut` | sent each way in a step | processor time of a step | most memory |\n|---|---|---|---|---|")
    for cut, name in CUTS.items():
        before, _, first = client(selvedge, cut, few)
        after, memory, last = client(selvedge, cut, many)
        milliseconds = 1e3 * (after - before) / (many - few)
        kilobytes = (last["bytes_up"] - first["bytes_up"]) / (many - few) / 1e3
        print(f"| {name} | {cut or ''} | {kilobytes:.0f} kB | {milliseconds:.1f} ms | {memory / 1e6:.0f} MB |", flush=True)


if __name__ == "__main__":
    main()
