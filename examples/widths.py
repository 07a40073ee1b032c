"""What a client needs at each width of the HeteroFL CNN: parameters, bytes that travel, the time of a step, and the most
memory that its process holds. Prints the table of docs/sub-models.md. Needs Python 3.9 or later on a Unix system.

    cargo build --release && python3 examples/widths.py
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import tempfile

WIDTHS = [1.0, 0.5, 0.25, 0.125, 0.0625]
STEPS = 100
PORT = 44331

DESCRIPTION = """
rounds = 3
clients = 1
data = {{ source = "fashion-mnist-small" }}
model = {{ preset = "heterofl-cnn" }}
training = {{ steps = {steps}, batch_size = 10, optimiser = {{ kind = "sgd", learning_rate = 0.01 }} }}
evaluation = {{ every = 1000 }}
[sub_models]
plan = {{ kind = "static" }}
capacities = [{{ width = {width}, share = 1.0 }}]
batch_norm = "static"
"""


def peak_of_client(selvedge, folder):
    """The most memory of a client's process, in bytes."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    coordinator = [selvedge, "coordinator", "run.toml", "--certs", "certs", "--listen", f"127.0.0.1:{PORT}", "--quiet"]
    coordinator = subprocess.Popen([*coordinator, "--out", "served"], cwd=folder, **quiet)
    client = [selvedge, "client", f"127.0.0.1:{PORT}", "--name", "client-0", "--deal", "run.toml", "--quiet"]
    client = subprocess.Popen(client, cwd=folder, **quiet)
    _, status, usage = os.wait4(client.pid, 0)
    client.returncode = os.waitstatus_to_exitcode(status)
    if coordinator.wait() or client.returncode:
        raise SystemExit("the run over the network failed")
    return usage.ru_maxrss * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--selvedge", type=pathlib.Path, default="target/release/selvedge", help="the program")
    selvedge = parser.parse_args().selvedge.resolve()
    print("| width | parameters | sent each way | over 4 bytes a parameter | step of 10 examples | peak memory |")
    print("|---|---|---|---|---|---|")
    for width in WIDTHS:
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "run.toml").write_text(DESCRIPTION.format(width=width, steps=STEPS))
            run = lambda *arguments: subprocess.run([selvedge, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout
            shown = run("model", "show", "run.toml", "--width", str(width))
            parameters = int(re.search(r"total +([\d,]+)", shown)[1].replace(",", ""))
            run("simulate", "run.toml", "--workers", "1", "--quiet", "--out", "simulated")
            rounds = [json.loads(line) for line in (folder / "simulated/rounds.jsonl").read_text().splitlines()]
            assert rounds[0]["bytes_up"] == rounds[0]["bytes_down"]
            step = min(round["seconds"] for round in rounds[:-1]) / STEPS
            run("certs", "new", "certs")
            run("certs", "issue", "certs", "client-0")
            peak = peak_of_client(selvedge, folder)
        sent = rounds[0]["bytes_up"]
        beyond = sent / (4 * parameters) - 1
        print(f"| {width} | {parameters:,} | {sent:,} | {beyond:.2%} | {1000 * step:.2f} ms | {peak / 1e6:.0f} MB |", flush=True)


if __name__ == "__main__":
    main()
