"""Certificates that a test makes with openssl, like an operator.

A caller's role and id are in the common name, "atoll:ROLE:ID", and its extended
key usage fits the role. A certificate of a listener also has loopback's names
(proto/ISLAND.md, section 2).
"""

import os
import shutil
import subprocess

import grpc


def _openssl(*arguments, cwd):
    done = subprocess.run(("openssl",) + arguments, cwd=cwd,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, "openssl %s:\n%s" % (" ".join(arguments),
                                                      done.stdout)


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


# The extended key usage of each role; of names without a role: a caller's.
_USES = {"coordinator": "serverAuth", "server": "serverAuth,clientAuth"}


class Certificate:
    """Paths of a program's three TLS files, and whom they name."""

    def __init__(self, cert, key, ca, common_name=None):
        self.cert, self.key, self.ca = cert, key, ca
        self.common_name = common_name

    @property
    def flags(self):
        return ["--tls-cert=" + self.cert, "--tls-key=" + self.key,
                "--tls-ca=" + self.ca]

    def take_place_of(self, other):
        """Replaces the files of `other` one by one, each at once."""
        for mine, its in ((self.cert, other.cert), (self.key, other.key)):
            shutil.copy(mine, its + ".new")
            os.replace(its + ".new", its)

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
        _openssl("req", "-x509", *_NEW_KEY, "-keyout", "ca.key", "-out",
                 "ca.pem", "-days", "2", "-subj", "/CN=a test's authority",
                 cwd=directory)

    @classmethod
    def of(cls, directory, cert, key, ca):
        """An existing CA, whose certificates are used with the CA file `ca`."""
        made = cls.__new__(cls)
        made._directory, made.ca = directory, ca
        shutil.copy(cert, os.path.join(directory, "ca.pem"))
        shutil.copy(key, os.path.join(directory, "ca.key"))
        return made

    def issue(self, common_name, days=2, dialled=False, uses=None, uri=None):
        """Issues a certificate; with `days` -1 it expired yesterday.

        `uses`: the extended key usage, "" for none; None: the role's. `uri`: a
        subject alternative name.
        """
        stem = "%d" % len(os.listdir(self._directory))
        cwd = self._directory
        _openssl("req", *_NEW_KEY, "-keyout", stem + ".key", "-out",
                 stem + ".csr", "-subj", "/CN=" + common_name, cwd=cwd)
        if uses is None:
            role = (common_name.split(":") + [""])[1]
            uses = _USES.get(role, "clientAuth")
        with open(os.path.join(cwd, stem + ".ext"), "w") as file:
            if uses:
                file.write("extendedKeyUsage=%s\n" % uses)
            if dialled:
                file.write("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
            if uri:
                file.write("subjectAltName=URI:%s\n" % uri)
        _openssl("x509", "-req", "-in", stem + ".csr", "-CA", "ca.pem",
                 "-CAkey", "ca.key", "-CAcreateserial", "-days", str(days),
                 "-out", stem + ".pem", "-extfile", stem + ".ext", cwd=cwd)
        path = os.path.join(cwd, stem)
        return Certificate(path + ".pem", path + ".key", self.ca, common_name)

    @property
    def credentials_without_certificate(self):
        """Credentials that trust this authority and present no certificate."""
        return grpc.ssl_channel_credentials(_read(self.ca))
