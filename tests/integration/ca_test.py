#!/usr/bin/python3
"""`atoll ca`: what openssl says of its certificates, and what Kubernetes gets."""

import base64
import http.server
import json
import os
import shutil
import ssl
import subprocess
import threading

from harness import cases
from harness import cluster as cluster_module
from harness import processes

USAGE, INVALID, FORBIDDEN, FENCED, CONFLICT = 2, 4, 7, 9, 409


class Api:
    """Answers like Kubernetes' API, over HTTPS."""

    def __init__(self, certificate, port=0, answers=()):
        self.requests = []  # (path, token, body)
        left = list(answers)
        known = set()
        api = self

        class Handler(http.server.BaseHTTPRequestHandler):

            def do_POST(self):  # The library calls it so.
                body = json.loads(self.rfile.read(
                    int(self.headers["Content-Length"])))
                api.requests.append(
                    (self.path, self.headers["Authorization"], body))
                name = body["metadata"]["name"]
                code = left.pop(0) if left else (
                    CONFLICT if name in known else 201)
                known.add(name)
                text = json.dumps({"message": "the API says %d" % code})
                self.send_response(code)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_):
                pass

        self._server = http.server.HTTPServer(("127.0.0.1", port), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate + "/tls.crt",
                                certificate + "/tls.key")
        self._server.socket = context.wrap_socket(self._server.socket,
                                                  server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = "https://127.0.0.1:%d" % self._server.server_port

    def close(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class CaTest(cluster_module.IntegrationTest):

    def setUp(self):
        super().setUp()
        self.directory = os.path.join(self.root, self.id())
        os.makedirs(self.directory)
        self.ca("init", "--dir", "ca")
        self.issue("server", "api", "api", "--host", "127.0.0.1")
        with open(self.path("token"), "w", encoding="utf-8") as file:
            file.write("secret\n")

    def path(self, *parts):
        return os.path.join(self.directory, *parts)

    def ca(self, *arguments, check=0, env=None):
        return processes.run_cli("ca", *arguments, check=check, env=env,
                                 cwd=self.directory)

    def issue(self, role, name, out, *arguments, **kwargs):
        return self.ca("issue", "--dir", "ca", "--role", role, "--id", name,
                       "--out", out, *arguments, **kwargs)

    def read(self, *parts):
        with open(self.path(*parts), "rb") as file:
            return file.read()

    def start_api(self, **kwargs):
        api = Api(self.path("api"), **kwargs)
        self.addCleanup(api.close)
        return api

    def publish(self, *arguments, api_ca="api/ca.crt", **kwargs):
        return self.ca(
            "publish", "--from", "certs", "--namespace", "train", "--prefix",
            "atoll", "--token-file", "token", "--api-ca", api_ca, *arguments,
            **kwargs)

    def verify(self, use, trusted, chain):
        """What openssl says of the first certificate of the file `chain`."""
        return subprocess.run(
            ["openssl", "verify", "-x509_strict", "-partial_chain", "-purpose",
             use, "-CAfile", trusted, "-untrusted", chain, chain],
            cwd=self.directory, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False)

    def test_openssl_accepts_what_it_issues(self):
        for role, uses in (("server", ("sslserver", "sslclient")),
                           ("gate", ("sslserver", "sslclient")),
                           ("coordinator", ("sslserver",)),
                           ("island", ("sslclient",))):
            self.issue(role, "x", role, *(
                [] if role == "island" else ["--host", "s.example.org"]))
            chain = role + "/tls.crt"
            for trusted in ("ca/root.crt", role + "/ca.crt"):
                for use in ("sslserver", "sslclient"):
                    done = self.verify(use, trusted, chain)
                    self.assertEqual(done.returncode == 0, use in uses,
                                     done.stdout)

    def test_an_island_ca_makes_clients_that_only_its_own_trust_accepts(self):
        self.issue("gate", "g", "gate", "--host", "127.0.0.1")
        self.issue("operator", "anna", "anna")
        # What a thief of a gate's key can do.
        with open(self.path("extensions"), "w", encoding="utf-8") as file:
            file.write("extendedKeyUsage = serverAuth, clientAuth\n"
                       "subjectAltName = DNS:c.example.org\n"
                       "authorityKeyIdentifier = keyid\n")
        for command in (
                "openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 "
                "-nodes -keyout key -subj /CN=atoll:coordinator:c -out request",
                "openssl x509 -req -in request -CA gate/island-ca.crt -CAkey "
                "gate/island-ca.key -CAcreateserial -extfile extensions "
                "-out thief.crt"):
            subprocess.run(command.split(), cwd=self.directory, check=True,
                           stderr=subprocess.DEVNULL)
        with open(self.path("thief.pem"), "wb") as chain:
            for name in ("thief.crt", "gate/island-ca.crt", "ca/root.crt"):
                with open(self.path(name), "rb") as file:
                    chain.write(file.read())
        for use, trusted, accepted in (
                ("sslclient", "gate/island-ca.crt", True),
                ("sslclient", "anna/ca.crt", False),
                ("sslserver", "anna/ca.crt", False),
                ("sslserver", "gate/island-ca.crt", False),
                ("sslserver", "ca/root.crt", False)):
            done = self.verify(use, trusted, "thief.pem")
            self.assertEqual(done.returncode == 0, accepted,
                             (use, trusted, done.stdout))

    def test_runs_are_for_islands_and_readers(self):
        self.issue("reader", "web", "web", "--run", "spring,fall", "--run", "x")
        text = subprocess.run(
            ["openssl", "x509", "-in", "web/tls.crt", "-noout", "-ext",
             "subjectAltName"], cwd=self.directory, stdout=subprocess.PIPE,
            text=True, check=True).stdout
        for run in ("spring", "fall", "x"):
            self.assertIn("URI:atoll:///run/%s/reader/web" % run, text)
        self.issue("operator", "anna", "anna", "--run", "spring", check=USAGE)

    def test_a_renewal_replaces_one_file(self):
        self.issue("island", "kitchen", "kitchen", "--days", "1")
        names = ("tls.crt", "tls.key", "ca.crt")
        before = [self.read("kitchen", name) for name in names]
        done = self.ca("renew", "--dir", "ca", "kitchen", "api", "-o", "json")
        renewed = json.loads(done.stdout)["data"]["certificates"]
        self.assertEqual([item["common_name"] for item in renewed],
                         ["atoll:island:kitchen", "atoll:server:api"])
        after = [self.read("kitchen", name) for name in names]
        self.assertEqual([a == b for a, b in zip(before, after)],
                         [False, True, True])
        self.assertEqual(done.stderr, "")
        self.ca("renew", "--dir", "ca", check=USAGE)
        self.ca("init", "--dir", "other")
        done = self.ca("renew", "--dir", "other", "kitchen", check=INVALID)
        self.assertIn("kitchen/tls.crt", done.stderr)

    def test_cas_are_renewed_with_the_key_of_the_root(self):
        self.issue("island", "kitchen", "kitchen")
        key = self.path("ca", "root.key")
        os.rename(key, self.path("offline"))
        self.ca("renew", "--dir", "ca", "--authorities", check=FENCED)
        self.issue("island", "attic", "attic")  # Does not need it.
        os.rename(self.path("offline"), key)
        done = self.ca("renew", "--dir", "ca", "--authorities", "--days", "9")
        self.assertIn("copy service-ca.crt over ca.crt", done.stderr)
        for trusted in ("ca/root.crt", "ca/service-ca.crt"):
            done = self.verify("sslclient", trusted, "kitchen/tls.crt")
            self.assertEqual(done.returncode, 0, done.stdout)
        done = self.ca("renew", "--dir", "ca", "kitchen", "--days", "30")
        self.assertEqual(self.verify("sslclient", "kitchen/ca.crt",
                                     "kitchen/tls.crt").returncode, 0)

    def test_every_directory_becomes_a_secret_once(self):
        self.issue("island", "attic", "certs/attic")
        self.ca("init", "--dir", "certs/ca", "--existing", "ca")
        api = self.start_api()
        # A pod is told where the API is.
        address, port = api.url[len("https://"):].split(":")
        pod = {"KUBERNETES_SERVICE_HOST": address,
               "KUBERNETES_SERVICE_PORT": port}
        done = self.publish("--label", "app=atoll", "-o", "json", env=pod)
        # The CA first: who starts again half-way must find it.
        self.assertEqual(json.loads(done.stdout)["data"]["secrets"], [
            {"secret": "atoll-ca", "created": True},
            {"secret": "atoll-attic-tls", "created": True}])
        path, token, secret = api.requests[1]
        self.assertEqual(path, "/api/v1/namespaces/train/secrets")
        self.assertEqual(token, "Bearer secret")
        self.assertEqual(secret["type"], "kubernetes.io/tls")
        self.assertEqual(secret["metadata"]["labels"], {"app": "atoll"})
        files = {name: self.read("certs", "attic", name)
                 for name in ("tls.crt", "tls.key", "ca.crt")}
        self.assertEqual({k: base64.b64decode(v)
                          for k, v in secret["data"].items()}, files)
        self.assertEqual(sorted(api.requests[0][2]["data"]),
                         ["island-ca.crt", "island-ca.key", "issued.txt",
                          "root.crt", "service-ca.crt", "service-ca.key"])
        again = self.publish("--api", api.url, "--existing", "ca")
        self.assertEqual(again.stdout.count("already there"), 2)

    def test_a_gates_secret_has_the_island_ca(self):
        self.issue("gate", "g0", "certs/gate", "--host", "127.0.0.1")
        self.issue("coordinator", "c", "certs/c", "--host", "127.0.0.1")
        api = self.start_api()
        self.publish("--api", api.url)
        self.assertEqual(
            {secret["metadata"]["name"]: sorted(secret["data"])
             for _, _, secret in api.requests},
            {"atoll-gate-tls": ["ca.crt", "island-ca.crt", "island-ca.key",
                                "tls.crt", "tls.key"],
             "atoll-c-tls": ["ca.crt", "island-ca.crt", "tls.crt", "tls.key"]})

    def test_certificates_of_another_authority_are_not_published(self):
        self.ca("init", "--dir", "certs/ca", "--existing", "ca")
        api = self.start_api()
        self.publish("--api", api.url)
        # As a second Job that started at the same time, without the Secret.
        self.ca("init", "--dir", "ca2")
        shutil.rmtree(self.path("certs"))
        self.ca("init", "--dir", "certs/ca", "--existing", "ca2")
        self.ca("issue", "--dir", "ca2", "--role", "island", "--id", "attic",
                "--out", "certs/attic")
        for existing in ((), ("--existing", "ca")):
            done = self.publish("--api", api.url, *existing, check=FENCED)
            self.assertIn("another CA", done.stderr)
        self.assertEqual([secret["metadata"]["name"]
                          for _, _, secret in api.requests], ["atoll-ca"] * 3)

    def test_a_list_of_revoked_certificates_becomes_a_secret(self):
        self.issue("operator", "anna", "certs/anna")
        self.ca("revoke", "--dir", "ca", "operator:anna")
        self.ca("init", "--dir", "certs/ca", "--existing", "ca")
        api = self.start_api()
        self.publish("--api", api.url)
        secrets = {secret["metadata"]["name"]: secret["data"]
                   for _, _, secret in api.requests}
        self.assertEqual(sorted(secrets),
                         ["atoll-anna-tls", "atoll-ca", "atoll-crl"])
        self.assertEqual(base64.b64decode(secrets["atoll-crl"]["crl.pem"]),
                         self.read("ca", "crl.pem"))

    def test_what_is_issued_is_listed_and_openssl_sees_what_is_revoked(self):
        self.issue("operator", "anna", "anna")
        self.issue("operator", "berta", "berta")
        done = self.ca("revoke", "--dir", "ca", "operator:anna")
        self.assertIn("crl.pem", done.stderr)
        done = self.ca("list", "--dir", "ca", "-o", "json")
        self.assertEqual(
            [(c["common_name"], c["state"])
             for c in json.loads(done.stdout)["data"]["certificates"]],
            [("atoll:server:api", "VALID"), ("atoll:operator:anna", "REVOKED"),
             ("atoll:operator:berta", "VALID")])
        for name, good in (("anna", False), ("berta", True)):
            done = subprocess.run(
                ["openssl", "verify", "-partial_chain", "-crl_check",
                 "-CRLfile", "ca/crl.pem", "-CAfile", name + "/ca.crt",
                 name + "/tls.crt"], cwd=self.directory, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            self.assertEqual(done.returncode == 0, good, done.stdout)
        self.ca("revoke", "--dir", "ca", "operator:zoe", check=8)

    def test_an_empty_ca_of_the_api_is_named(self):
        self.issue("island", "kitchen", "certs/kitchen")
        api = self.start_api()
        open(self.path("empty.crt"), "w").close()
        done = self.publish("--api", api.url, api_ca="empty.crt", check=None)
        self.assertIn("empty.crt is empty", done.stderr)

    def test_it_asks_again_until_the_api_answers(self):
        self.issue("island", "kitchen", "certs/kitchen")
        api = self.start_api(answers=[503, 500])
        self.publish("--api", api.url)
        self.assertEqual(len(api.requests), 3)

    def test_a_refusal_says_what_the_api_says(self):
        self.issue("island", "kitchen", "certs/kitchen")
        api = self.start_api(answers=[403])
        done = self.publish("--api", api.url, check=FORBIDDEN)
        for word in ("atoll-kitchen-tls", "403", "the API says 403"):
            self.assertIn(word, done.stderr)

    def test_it_trusts_only_the_given_authority(self):
        self.issue("island", "kitchen", "certs/kitchen")
        self.ca("init", "--dir", "other")
        api = self.start_api()
        done = self.publish("--api", api.url, api_ca="other/root.crt", check=None)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("--api-ca other/root.crt", done.stderr)
        self.assertEqual(api.requests, [])
        done = self.publish("--api", "http://127.0.0.1:1", check=None)
        self.assertIn("https://", done.stderr)


if __name__ == "__main__":
    cases.main()
