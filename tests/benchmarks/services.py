#!/usr/bin/python3
"""Converts measurements of this machine into the input of `utilization`.

usage: services.py --codec FILE --round FILE > services.json

The FILEs are the output of `codec --json` and `round --json`. A codec's
throughput is that of one thread on the fastest path from DRAM: `feedback` for
encoding, `decode` for decoding. The merge's throughput comes from the round
with the most islands at the given level: the f32 bytes of all contributions
over the time from the last pushed byte until the islands know of the commit.
"""

import argparse
import json
import sys


def read_rows(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def codec_rates(rows, operation):
    rates = {}
    for row in rows:
        if row["operation"] == operation and row["place"] == "dram":
            rate = 1e9 * row["gb_per_second"]
            rates[row["case"]] = max(rate, rates.get(row["case"], 0))
    return rates


def merge_rate(rows, durability):
    merges = [row for row in rows if row["case"] == "f32_nesterov" and
              row["durability"] == durability]
    if not merges:
        raise SystemExit("no round at level %s" % durability)
    return 1e9 * max(merges, key=lambda row: row["islands"])["merge_gb_per_s"]


def services(codec, rounds, durability):
    return {
        "encode_bytes_per_second": codec_rates(codec, "feedback"),
        "decode_bytes_per_second": codec_rates(codec, "decode"),
        "merge_bytes_per_second": merge_rate(rounds, durability),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--codec", required=True)
    parser.add_argument("--round", required=True)
    parser.add_argument("--durability", default="process")
    arguments = parser.parse_args()
    json.dump(services(read_rows(arguments.codec), read_rows(arguments.round),
                       arguments.durability), sys.stdout, indent=2)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
