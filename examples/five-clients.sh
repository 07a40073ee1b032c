#!/usr/bin/env bash
# The same description with one, two and four workers, and as a coordinator and five clients, each a process with a
# certificate of its own: all print the same weights_blake3.
#
#     selvedge data fetch mnist && examples/five-clients.sh [DESCRIPTION] [ADDRESS]
set -euo pipefail
description=${1:-$(dirname "$0")/mnist-cnn-five-clients.toml}
address=${2:-127.0.0.1:4433}
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT

hash() { sed 's/.*"weights_blake3":"\([0-9a-f]*\)".*/\1/'; }

run=0
for workers in 1 2 4 2; do
    run=$((run + 1))
    summary=$(selvedge simulate "$description" --workers "$workers" --json --out "$folder/simulated-$run")
    echo "simulated, $workers workers: $(hash <<< "$summary")"
done

selvedge certs new "$folder/certs" > "$folder/log"
selvedge certs issue "$folder/certs" client-{0..4} >> "$folder/log"
for number in 0 1 2 3 4; do
    selvedge client "$address" --certs "$folder/certs" --name client-$number --deal "$description" --quiet \
        --state "$folder/state" &
done
summary=$(selvedge coordinator "$description" --certs "$folder/certs" --listen "$address" --json --out "$folder/network")
echo "over the network, 5 clients: $(hash <<< "$summary")"
wait
