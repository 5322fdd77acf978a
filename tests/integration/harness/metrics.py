"""The metrics port of a program: its flags, its paths, its text format."""

import http.client
import os
import re

from harness import processes
from harness import wait

METRICS, LIVE, READY = "/metrics", "/livez", "/readyz"

_SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPES = {"\\\\": "\\", "\\n": "\n", '\\"': '"'}


def _port_file(cluster, name):
    return os.path.join(cluster.directory, name + ".metrics-port")


def flags(cluster, name):
    """For the start of the process `name`: it listens on any free port."""
    path = _port_file(cluster, name)
    if os.path.exists(path):
        os.unlink(path)
    return ["--metrics-listen=127.0.0.1:0", "--metrics-port-file=" + path]


def port(cluster, name):
    """The metrics port of a process that was started with `flags`."""
    return processes.read_port(cluster.processes[name],
                               _port_file(cluster, name))


def get(metrics_port, path, **headers):
    """(status, body) of a GET."""
    connection = http.client.HTTPConnection(
        "127.0.0.1", metrics_port, timeout=wait.PATIENCE_S)
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


class Samples:
    """The samples of one scrape in text format 0.0.4."""

    def __init__(self, text):
        self._values = {}  # (name, sorted labels): value.
        for line in text.splitlines():
            if not line or line.startswith("#"):
                continue
            match = _SAMPLE.match(line)
            assert match, "not a sample: " + line
            name, labels, value = match.groups()
            key = name, tuple(sorted(
                (label, re.sub(r"\\.", lambda m: _ESCAPES[m.group()], escaped))
                for label, escaped in _LABEL.findall(labels or "")))
            assert key not in self._values, "a sample twice: " + line
            self._values[key] = float(value)

    def names(self):
        return {name for name, _ in self._values}

    def get(self, name, **labels):
        """The sample with exactly these labels; None if there is none."""
        return self._values.get((name, tuple(sorted(labels.items()))))

    def total(self, name, **labels):
        """The sum of all samples that have these labels; 0 without any."""
        return sum(value for (known, has), value in self._values.items()
                   if known == name and labels.items() <= dict(has).items())


def scrape(metrics_port):
    status, text = get(metrics_port, METRICS)
    assert status == 200, (status, text)
    return Samples(text)
