"""How many steps of parallel split learning a second a coordinator makes over loopback, with 1, 4, 16 and 64 clients, a
process each: the McMahan CNN cut after its first block, batches of 10. With --delay each datagram is held back on its way,
by a relay in this process for each client. Prints the table of docs/split-learning.md. Needs Python 3.9 or later on a Unix system.

    cargo build --release && python3 examples/split_throughput.py
    python3 examples/split_throughput.py --delay 20 --clients 1 4

What the back alone can do is `cargo bench --workspace --bench back`.
"""

import argparse
import heapq
import json
import pathlib
import select
import socket
import subprocess
import tempfile
import threading
import time

PORT = 44361

DESCRIPTION = """
rounds = 2
clients = {clients}
data = {{ source = "fashion-mnist-small" }}
model = {{ preset = "mcmahan-cnn" }}
training = {{ steps = {steps}, batch_size = 10, optimiser = {{ kind = "sgd", learning_rate = 0.01 }} }}
evaluation = {{ every = 1000 }}
[split]
method = {{ kind = "parallel" }}
cut = 3
smashed = "{encoding}"
gradients = "{encoding}"
devices = {{ speed = {speed}, server_speed = {server}, delay = {delay} }}
"""


def relay(port, server, delay, stop):
    """Carries datagrams between one client and the server, each held back for so many seconds."""
    client_side, server_side = socket.socket(type=socket.SOCK_DGRAM), socket.socket(type=socket.SOCK_DGRAM)
    for side in (client_side, server_side):
        side.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        side.setblocking(False)
    client_side.bind(("127.0.0.1", port))
    server_side.connect(("127.0.0.1", server))
    client, held, number = None, [], 0
    while not stop.is_set():
        wait = max(0, held[0][0] - time.monotonic()) if held else 0.1
        for side in select.select([client_side, server_side], [], [], wait)[0]:
            try:
                while True:
                    datagram, address = side.recvfrom(65536)
                    if side is client_side:
                        client = address
                    number += 1
                    heapq.heappush(held, (time.monotonic() + delay, number, side is client_side, datagram))
            except (BlockingIOError, ConnectionRefusedError):
                pass
        while held and held[0][0] <= time.monotonic():
            _, _, is_up, datagram = heapq.heappop(held)
            try:
                server_side.send(datagram) if is_up else client_side.sendto(datagram, client)
            except (BlockingIOError, ConnectionRefusedError):
                pass
    client_side.close()
    server_side.close()


def measure(selvedge, clients, steps, delay, encoding, speed, server):
    """The last round's record."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        text = DESCRIPTION.format(
            clients=clients, steps=steps, encoding=encoding, delay=float(delay), speed=float(speed), server=float(server)
        )
        (folder / "run.toml").write_text(text)
        quiet = {"cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        names = [f"client-{number}" for number in range(clients)]
        subprocess.run([selvedge, "certs", "new", "certs"], check=True, **quiet)
        subprocess.run([selvedge, "certs", "issue", "certs", *names], check=True, **quiet)
        coordinator = [selvedge, "coordinator", "run.toml", "--certs", "certs", "--listen", f"127.0.0.1:{PORT}", "--quiet"]
        coordinator = subprocess.Popen([*coordinator, "--out", "served"], **quiet)
        stop, agents, carriers = threading.Event(), [], []
        for number, name in enumerate(names):
            port = PORT
            if delay:
                port = PORT + 1 + number
                carrier = threading.Thread(target=relay, args=(port, PORT, delay / 1000, stop), daemon=True)
                carrier.start()
                carriers.append(carrier)
            command = [selvedge, "client", f"127.0.0.1:{port}", "--name", name, "--deal", "run.toml", "--quiet"]
            agents.append(subprocess.Popen(command, **quiet))
        if coordinator.wait() or any(agent.wait() for agent in agents):
            raise SystemExit("the run over the network failed")
        stop.set()
        for carrier in carriers:
            carrier.join()
        # The first round is for warming up.
        return json.loads((folder / "served" / "rounds.jsonl").read_text().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--selvedge", type=pathlib.Path, default="target/release/selvedge", help="the program")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16, 64], help="how many clients")
    parser.add_argument("--delay", type=int, default=0, help="milliseconds each way")
    parser.add_argument("--encoding", default="f32", help="how smashed data and cut gradients travel")
    parser.add_argument("--speed", type=float, default=10, help="a client's speed for the prediction, GFLOPS")
    parser.add_argument("--server-speed", type=float, default=60, help="the server's")
    arguments = parser.parse_args()
    selvedge = arguments.selvedge.resolve()
    print("| clients | steps a second | a step, measured | predicted | parts lost |\n|---|---|---|---|---|")
    for clients in arguments.clients:
        steps = max(30, (100 if arguments.delay else 400) // clients)
        record = measure(
            selvedge, clients, steps, arguments.delay, arguments.encoding, arguments.speed, arguments.server_speed
        )
        made = record["steps"]
        lost = sum(made.get("lost", {}).values())
        seconds, predicted = made["seconds"], made["predicted_seconds"]
        print(f"| {clients} | {1 / seconds:.1f} | {1e3 * seconds:.1f} ms | {1e3 * predicted:.1f} ms | {lost} |", flush=True)


if __name__ == "__main__":
    main()
