"""Measures the share of its time that an island computes behind a slow link.

usage: slow_link [--json] [--links 1Gb/s,100Mb/s,50Mb/s,10Mb/s] [--cases A,B]
                 [--rtt-ms 20] [--islands 2] [--rounds 4]
                 [--rows FILE] [--minutes 3]
       slow_link --payload [--links 10Mb/s]
       slow_link --up 5Mb/s --down 20Mb/s [--links 100Mb/s] [--seconds 10]

For each link and case it plays a run with real processes. The islands have
their own network namespaces behind links of that bandwidth (`tc tbf`) and round
trip (a relay). Prints the share of the run's time that islands spent in inner
steps, as the mean over islands. The run's time is from the first step of any
island to the last of any, so an island that a round does not ask counts as
idle. Also prints the planner's prediction from the same speed, bytes up and
down per island, heartbeat latency, and how busy the processors were with other
programs. Other programs slow the steps down, so such a share is not that of a
quiet machine. A case that the coordinator refuses is listed with the reason.

A case takes a quarter of a minute to a minute. `--rows FILE` appends each
finished row to FILE and skips rows that are there. `--minutes` limits the time
in which cases begin. So a table can be made piece by piece.

`--payload` instead sends one 204.8 MB outer gradient over the slowest link. It
must arrive without the end of a lease, else the exit status is 1. `--up` and
`--down` instead run an island with these caps behind a faster link, with a
model that keeps each direction busy for about `--seconds`. They print the
traffic as a share of the cap, without framing: the least, median and most of
all busy windows of 3 s. Needs root, `ip` and `tc`.
"""

import argparse
import collections
import datetime
import functools
import json
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time

_HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [_HERE, os.path.join(_HERE, "..")]

# pylint: disable=wrong-import-position
import links
import methods
import traffic
from harness import cluster as cluster_module
from harness import processes
from harness import run_file
from harness import text

_UNITS = {"b/s": 1, "kb/s": 10**3, "Mb/s": 10**6, "Gb/s": 10**9}

# The quickstart's model, 0.86 million parameters; only training is timed.
_MODEL = {
    "inner": {"warmup_step_count": 10},
    "evaluation": {"every_round_count": 0},
    "schedule": {"lease_duration": "10s"},
}

_of = functools.partial(functools.partial, methods.values_of)
_of_preset = functools.partial(functools.partial, methods.values_of_preset)

# The table's cases and their run files: the short rounds of methods.py, then
# the shipped presets.
CASES = {
    "diloco": _of("diloco"),
    "diloco_h100": _of("diloco", {"schedule": {"inner_step_count": 100}}),
    "int8_bf16": _of("int8_bf16_ef"),
    "streaming": _of("streaming"),
    "eager": _of("eager"),
    "decoupled": _of("decoupled"),
    "sparseloco": _of("sparseloco"),
    "async": _of("async"),
    "fedavg": _of("fedavg"),
    "fedopt": _of("fedadam"),
    "preset_streaming": _of_preset("streaming"),
    "preset_eager": _of_preset("eager"),
    "preset_decoupled": _of_preset("decoupled"),
    "preset_sparseloco": _of_preset("sparseloco"),
    "preset_async": _of_preset("async"),
    "preset_fedopt": _of_preset("fedopt"),
    "preset_volunteers": _of_preset("volunteers"),
}

# 51.2 million parameters as f32 are 204.8 MB; one step on one short sequence.
_PAYLOAD = {
    "durability": "process",
    "server_count": 2,
    "model": {
        "vocab_size": 256, "hidden_size": 640, "intermediate_size": 1796,
        "layer_count": 10, "head_count": 10, "kv_head_count": 10,
        "sequence_length": 16,
    },
    "inner": {"batch_size": 1},
    "evaluation": {"every_round_count": 0},
    "schedule": {"inner_step_count": 1, "round_count": 1,
                 "island_count_min": 1, "min_quorum": 1,
                 "lease_duration": "10s"},
    "data": {"data_shard_count": 1},
}
_PAYLOAD_BYTES = 4 * (2 * 256 * 640 + 640 + 10 * (
    2 * 640 + 4 * 640 * 640 + 3 * 640 * 1796))


# One step on one short sequence per round: only the traffic matters.
_CAPPED = run_file.merged(_PAYLOAD, {
    "model": {"hidden_size": 256, "intermediate_size": 512, "layer_count": 1,
              "head_count": 4, "kv_head_count": 4},
    "schedule": {"round_count": 2},
})
_LAYER_BYTES = 4 * (4 * 256 * 256 + 3 * 256 * 512)
_WINDOW_S = 3


def parse_link(word):
    match = re.fullmatch(r"([0-9.]+)([kMG]?b/s)", word)
    if not match:
        raise argparse.ArgumentTypeError(
            "%r is not a bandwidth such as 10Mb/s" % word)
    return int(float(match.group(1)) * _UNITS[match.group(2)])


def format_link(bits_per_second):
    for unit in ("Gb/s", "Mb/s", "kb/s"):
        if bits_per_second >= _UNITS[unit]:
            return "%g%s" % (bits_per_second / _UNITS[unit], unit)
    return "%db/s" % bits_per_second


def cpu_model():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()


def relay_program():
    return processes.binary("tests/benchmarks/slow_link/delay_relay")


def outcome_of(process):
    with open(process.log_path, encoding="utf-8", errors="replace") as file:
        log = file.read()
    return json.loads(log[log.rindex('{\n  "schema_version"'):])["data"]


class Processors:
    """Load of the processors from now on: by our processes, and by others."""

    def __init__(self):
        self._time = time.monotonic()
        self._all = self._all_seconds()
        self._ours = self._our_seconds()

    def seconds(self):
        """CPU seconds of our processes that have ended and were reaped."""
        return self._our_seconds() - self._ours

    def other_share(self):
        """Share of all processors' time that other programs used."""
        span = (time.monotonic() - self._time) * os.cpu_count()
        others = self._all_seconds() - self._all - self.seconds()
        return max(0.0, others / span)

    @staticmethod
    def _all_seconds():
        with open("/proc/stat", encoding="ascii") as file:
            numbers = [int(word) for word in file.readline().split()[1:]]
        # All except idle and iowait; user already includes guests.
        busy = sum(numbers[:8]) - numbers[3] - numbers[4]
        return busy / os.sysconf("SC_CLK_TCK")

    @staticmethod
    def _our_seconds():
        both = [resource.getrusage(who) for who in
                (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(usage.ru_utime + usage.ru_stime for usage in both)


def span_of(one):
    return (_when(one["training_end_time"]) -
            _when(one["training_begin_time"])).total_seconds()


def span_of_run(said):
    return (max(_when(one["training_end_time"]) for one in said) -
            min(_when(one["training_begin_time"]) for one in said)
            ).total_seconds()


def _when(word):
    return datetime.datetime.fromisoformat(word)


def computing_share(said):
    computing = sum(one["computing_seconds"] for one in said) / len(said)
    return computing / span_of_run(said)


def pauses_of(said):
    """Time outside of steps, by activity: seconds of the mean island.

    "between actions" is the time between activities. "before and behind" is the
    idle time before an island's own first step and after its last.
    """
    seconds = collections.Counter()
    for one in said:
        for pause in one["pauses"]:
            seconds[pause["what"]] += pause["seconds"]
        known = sum(pause["seconds"] for pause in one["pauses"])
        seconds["between actions"] += (span_of(one) - known -
                                       one["computing_seconds"])
        seconds["before and behind"] += span_of_run(said) - span_of(one)
    return {what: sum_ / len(said) for what, sum_ in seconds.most_common()}


def share_of_so_many_rounds(lasting, asked_share, rounds):
    """The computing share of `rounds` rounds, from the share `lasting` of an
    endless run.

    No island computes after the last exchange, so only R - 1 exchanges of R
    rounds count. `asked_share` of the islands works in a round.
    """
    standing = asked_share / lasting - 1
    return asked_share / (1 + (rounds - 1) / rounds * standing)


def predict(path, link_name, arguments, tokens_per_second):
    done = processes.run_cli(
        "plan", "--model", path, "--link", link_name, "--rtt",
        "%gms" % arguments.rtt_ms, "--islands", str(arguments.islands),
        "--tokens-per-second", "%f" % tokens_per_second, "-o", "json", check=0)
    as_it_is = json.loads(done.stdout)["data"]["presets"][0]
    return share_of_so_many_rounds(
        as_it_is["utilization"],
        as_it_is["asked_island_count"] / arguments.islands, arguments.rounds)


def run_case(directory, values, bits_per_second, arguments, timeout,
             flags=(), recorders=None):
    """Plays one run; returns the islands' final outputs and the run file.

    `flags` are for the islands; `recorders` receives one per link.
    """
    cluster = cluster_module.Cluster(directory)
    made = []
    try:
        cluster.start_coordinator()
        cluster.start_servers(values["server_count"])
        methods.create(cluster, values)
        ports = [int(cluster.coordinator_address.split(":")[1])]
        ports += [int(cluster.server_address("server-%d" % i).split(":")[1])
                  for i in range(values["server_count"])]
        islands = []
        for index in range(values["schedule"]["island_count_min"]):
            link = links.Link(index, bits_per_second, arguments.rtt_ms,
                              relay_program())
            made.append(link)
            link.relay(ports)
            if recorders is not None:
                recorders.append(traffic.Recorder(link.interface))
            islands.append(cluster.start_island(
                "run", "island-%d" % index,
                arguments=["-o", "json"] + list(flags),
                prefix=link.prefix))
        cluster.wait_state(cluster_module.COMPLETED, timeout=timeout)
        for island in islands:
            island.wait(60)
        return ([outcome_of(island) for island in islands],
                cluster.islands(), os.path.join(directory, "run.toml"))
    finally:
        cluster.close()
        for recorder in recorders or ():
            recorder.close()
        for link in made:
            link.close()


def key_of(case, bits_per_second, arguments):
    return {"case": case, "link": format_link(bits_per_second),
            "rtt_ms": arguments.rtt_ms, "islands": arguments.islands,
            "rounds": arguments.rounds}


def transfers_of(result):
    said, members, _ = result
    latency = [one["heartbeat_latency_seconds"] for one in said]
    return {
        "bytes_up": sum(one["sent_bytes"] for one in said) // len(said),
        "bytes_down": sum(one["received_bytes"] for one in said) // len(said),
        "heartbeats": sum(one["count"] for one in latency),
        "heartbeat_p99_s": max(one["p99"] for one in latency),
        "heartbeat_max_s": max(one["max"] for one in latency),
        # An island would rejoin after the end of its lease.
        "rejoins": sum(member.island_epoch for member in members) - len(said),
    }


def summarise(case, bits_per_second, arguments, result, processors):
    said, _, path = result
    speed = sum(one["tokens_per_second"] for one in said) / len(said)
    return {
        **key_of(case, bits_per_second, arguments),
        "computing": computing_share(said),
        "predicted": predict(path, format_link(bits_per_second), arguments,
                             speed),
        "tokens_per_second": speed,
        "seconds": span_of_run(said),
        "pauses": pauses_of(said),
        **transfers_of(result),
        "cpu_seconds": processors.seconds(),
        "others_share": processors.other_share(),
        "cpu": cpu_model(),
    }


def values_of(case, arguments, data):
    values = CASES[case](_MODEL, data)
    schedule = values["schedule"]
    is_async = schedule.get("max_staleness", 0) > 0
    # A quorum of one or two stays; a strict run awaits all asked islands.
    asked = max(1, int(schedule.get("sample_fraction", 1) * arguments.islands))
    quorum = min(schedule["min_quorum"], asked)
    return run_file.merged(values, {
        "schedule": {
            "island_count_min": arguments.islands,
            "min_quorum": (quorum if schedule["timing"] == "elastic" else
                           arguments.islands),
            # In an async run each contribution is a version.
            "round_count": arguments.rounds * (arguments.islands if is_async
                                               else 1)},
        "data": {"data_shard_count": arguments.islands}})


def show_refused(case, why, as_json):
    if as_json:
        print(json.dumps({"case": case, "refused": str(why)}), flush=True)
    else:
        print("%-12s refused: %s" % (case, why), flush=True)


def measure_cap(directory, data, arguments, name, cap):
    """Runs one island with only the cap `name`, "up" or "down"."""
    layers = max(1, round(cap / 8 * arguments.seconds / _LAYER_BYTES))
    values = run_file.merged(run_file.BASE, _CAPPED, data,
                             {"model": {"layer_count": layers}})
    recorders = []
    (said,), _, _ = run_case(
        directory, values, max(arguments.links), arguments, 1800,
        ["--%s=%s" % (name, format_link(cap))], recorders)
    samples = recorders[0].samples
    column = 1 if name == "up" else 2
    payload = said["sent_bytes" if name == "up" else "received_bytes"]
    crossed = samples[-1][column] - samples[0][column]
    points = [(s[0], s[column] * payload / crossed) for s in samples]
    shares = traffic.shares_of(points, cap / 8, _WINDOW_S)
    row = {"case": "cap_" + name, "cap": format_link(cap),
           "link": format_link(max(arguments.links)),
           "rtt_ms": arguments.rtt_ms, "window_s": _WINDOW_S,
           "windows": len(shares), "payload_bytes": payload,
           "framing": crossed / payload - 1}
    for word, place in (("min", 0), ("median", 0.5), ("max", 1)):
        row["share_" + word] = (
            shares[int(place * (len(shares) - 1))] if shares else None)
    row["heartbeat_p99_s"] = said["heartbeat_latency_seconds"]["p99"]
    row["cpu"] = cpu_model()
    return row


def show(row, as_json):
    if as_json:
        print(json.dumps(row), flush=True)
        return
    print("%-17s %8s  computes %5.1f %% (predicted %5.1f %%)  up %7.2f MB  "
          "down %7.2f MB  heartbeat p99 %6.1f ms, rejoins %d; others' share of "
          "the processors %.0f %%" %
          (row["case"], row["link"], 100 * row["computing"],
           100 * row["predicted"], row["bytes_up"] / 1e6,
           row["bytes_down"] / 1e6, 1e3 * row["heartbeat_p99_s"],
           row["rejoins"], 100 * row["others_share"]), flush=True)


def faults_of(row):
    wrong = ["%s is %d and not %d" % (word, row[word], _PAYLOAD_BYTES)
             for word in ("bytes_up", "bytes_down")
             if row[word] != _PAYLOAD_BYTES]
    if row["rejoins"] > 0:
        wrong.append("a lease ended")
    return wrong


def measure_payload(directory, data, arguments):
    """Sends one outer gradient up and one version down over the slowest link.
    Returns its row and its faults."""
    slowest = min(arguments.links)
    values = run_file.merged(run_file.BASE, _PAYLOAD, data)
    processors = Processors()
    begin = time.monotonic()
    result = run_case(os.path.join(directory, "payload"), values, slowest,
                      arguments, timeout=3600)
    row = {"case": "payload", "link": format_link(slowest),
           "rtt_ms": arguments.rtt_ms, "seconds": time.monotonic() - begin,
           **transfers_of(result), "lease_s": 10,
           "others_share": processors.other_share(), "cpu": cpu_model()}
    return row, faults_of(row)


def show_payload(row, as_json):
    if as_json:
        print(json.dumps(row), flush=True)
        return
    print("payload %s  up %.1f MB, down %.1f MB in %.0f s; %d heartbeats, p99 "
          "%.0f ms, max %.0f ms; rejoins %d with a lease of %d s" %
          (row["link"], row["bytes_up"] / 1e6, row["bytes_down"] / 1e6,
           row["seconds"], row["heartbeats"], 1e3 * row["heartbeat_p99_s"],
           1e3 * row["heartbeat_max_s"], row["rejoins"], row["lease_s"]),
          flush=True)


def rows_of(path):
    """The rows of a file; skips a line that was cut short."""
    rows = []
    try:
        with open(path, encoding="utf-8") as file:
            for line in file:
                try:
                    rows.append(json.loads(line))
                except json.JSONDecodeError:
                    continue
    except FileNotFoundError:
        pass
    return rows


def is_done(rows, key):
    return any(all(row.get(word) == value for word, value in key.items())
               for row in rows)


def run_table(directory, data, arguments):
    done = rows_of(arguments.rows) if arguments.rows else []
    refused = set()
    begin = time.monotonic()
    for link in arguments.links:
        for case in arguments.cases:
            if case in refused or is_done(done,
                                          key_of(case, link, arguments)):
                continue
            if (arguments.minutes and
                    time.monotonic() - begin > 60 * arguments.minutes):
                print("the time is over; the same command continues with %s at "
                      "%s" % (case, format_link(link)), file=sys.stderr)
                return
            processors = Processors()
            try:
                result = run_case(
                    os.path.join(directory, "%s-%d" % (case, link)),
                    values_of(case, arguments, data), link, arguments, 1800)
            except methods.Refused as why:
                refused.add(case)
                show_refused(case, why, arguments.json)
                continue
            row = summarise(case, link, arguments, result, processors)
            show(row, arguments.json)
            if arguments.rows:
                with open(arguments.rows, "a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")


def parse(argv):
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0], prog="slow_link")
    parser.add_argument("--json", action="store_true",
                        help="print one JSON object a line")
    parser.add_argument("--links", default="1Gb/s,100Mb/s,50Mb/s,10Mb/s",
                        help="bandwidths, each way (%(default)s)")
    parser.add_argument("--cases", default=",".join(CASES),
                        help="any of %(default)s")
    parser.add_argument("--rtt-ms", type=float, default=20)
    parser.add_argument("--islands", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--rows", metavar="FILE",
                        help="append rows to FILE and skip those in it")
    parser.add_argument("--minutes", type=float,
                        help="begin no case after this many minutes")
    parser.add_argument("--payload", action="store_true",
                        help="204.8 MB over the slowest link, once")
    parser.add_argument("--up", help="measure this cap: 5Mb/s")
    parser.add_argument("--down", help="measure this cap: 20Mb/s")
    parser.add_argument("--seconds", type=float, default=10,
                        help="seconds to keep the smaller cap busy at a time")
    arguments = parser.parse_args(argv)
    try:
        arguments.links = [parse_link(w) for w in arguments.links.split(",")]
        arguments.up = arguments.up and parse_link(arguments.up)
        arguments.down = arguments.down and parse_link(arguments.down)
    except argparse.ArgumentTypeError as error:
        parser.error(str(error))
    arguments.cases = arguments.cases.split(",")
    for case in arguments.cases:
        if case not in CASES:
            parser.error("no case %r; there are %s" % (case, ", ".join(CASES)))
    return arguments


def main():
    arguments = parse(sys.argv[1:])
    links.in_private_namespace([sys.executable, "-B"] + sys.argv)
    directory = tempfile.mkdtemp(prefix="atoll-slow-link-")
    try:
        data = {"data": {"path": text.write_text(
            os.path.join(directory, "text"), 1)}}
        if arguments.payload:
            row, wrong = measure_payload(directory, data, arguments)
            show_payload(row, arguments.json)
            if wrong:
                sys.exit("payload: " + "; ".join(wrong))
            return
        if arguments.up or arguments.down:
            for name in ("up", "down"):
                cap = getattr(arguments, name)
                if cap:
                    print(json.dumps(measure_cap(
                        os.path.join(directory, name), data, arguments, name,
                        cap)), flush=True)
            return
        run_table(directory, data, arguments)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
