#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the rows of summary.json of a results folder again from its raw files: peers_*.json, and of
a GPU ours_*.json, whose rows stand where the peer was not measured.

usage: summarise.py FOLDER   (speed and first-token rows; peak memory needs the program)
"""
import json
import pathlib
import sys

import gpu_peers
import peers
import results


def rows_of(raw_path):
    record = json.loads(raw_path.read_text())
    if "gpu" in record["machine"]:
        return record, gpu_peers.rows_of_rounds(record)
    model, peer = record["model"], record["peer"]["name"]
    rows = [peers.speed_row(test, model, rounds, peer, raw_path.name)
            for test, rounds in record["rounds"].items() if test in peers.TESTS]
    if "start" in record["rounds"]:
        rows.append(peers.first_token_row(model, record["rounds"]["start"], peer, raw_path.name))
    return record, rows


def main():
    folder = pathlib.Path(sys.argv[1])
    for raw_path in sorted(folder.glob("ours_*.json")) + sorted(folder.glob("peers_*.json")):
        record, rows = rows_of(raw_path)
        results.update_summary(folder, record["commit"], record["machine"], rows)


if __name__ == "__main__":
    main()
