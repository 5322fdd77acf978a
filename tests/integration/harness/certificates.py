"""Certificates that a test makes with openssl, like an operator.

A caller's role and id are in the common name, "atoll:ROLE:ID". A certificate of
a listener also has loopback's names (proto/ISLAND.md, section 2).
"""

import os
import subprocess

import grpc


def _openssl(*arguments, cwd):
    done = subprocess.run(("openssl",) + arguments, cwd=cwd,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, "openssl %s:\n%s" % (" ".join(arguments),
                                                      done.stdout)


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


class Certificate:
    """Paths of a program's three TLS files."""

    def __init__(self, cert, key, ca):
        self.cert, self.key, self.ca = cert, key, ca

    @property
    def flags(self):
        return ["--tls-cert=" + self.cert, "--tls-key=" + self.key,
                "--tls-ca=" + self.ca]

    @property
    def credentials(self):
        return grpc.ssl_channel_credentials(
            _read(self.ca), _read(self.key), _read(self.cert))


def _read(path):
    with open(path, "rb") as file:
        return file.read()


class Authority:
    def __init__(self, directory):
        self._directory = directory
        os.makedirs(directory)
        self.ca = os.path.join(directory, "ca.pem")
        with open(os.path.join(directory, "names"), "w") as file:
            file.write("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        _openssl("req", "-x509", *_NEW_KEY, "-keyout", "ca.key", "-out",
                 "ca.pem", "-days", "2", "-subj", "/CN=a test's authority",
                 cwd=directory)

    def issue(self, common_name, days=2, dialled=False):
        """Issues a certificate; with `days` -1 it expired yesterday."""
        stem = "%d" % len(os.listdir(self._directory))
        cwd = self._directory
        _openssl("req", *_NEW_KEY, "-keyout", stem + ".key", "-out",
                 stem + ".csr", "-subj", "/CN=" + common_name, cwd=cwd)
        names = ("-extfile", "names") if dialled else ()
        _openssl("x509", "-req", "-in", stem + ".csr", "-CA", "ca.pem",
                 "-CAkey", "ca.key", "-CAcreateserial", "-days", str(days),
                 "-out", stem + ".pem", *names, cwd=cwd)
        path = os.path.join(cwd, stem)
        return Certificate(path + ".pem", path + ".key", self.ca)

    @property
    def credentials_without_certificate(self):
        """Credentials that trust this authority and present no certificate."""
        return grpc.ssl_channel_credentials(_read(self.ca))
