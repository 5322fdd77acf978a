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

FORBIDDEN, FENCED, CONFLICT = 7, 9, 409


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

    def start_api(self, **kwargs):
        api = Api(self.path("api"), **kwargs)
        self.addCleanup(api.close)
        return api

    def publish(self, *arguments, api_ca="api/ca.crt", **kwargs):
        return self.ca(
            "publish", "--from", "certs", "--namespace", "train", "--prefix",
            "atoll", "--token-file", "token", "--api-ca", api_ca, *arguments,
            **kwargs)

    def test_openssl_accepts_what_it_issues(self):
        for role, uses in (("server", ("sslserver", "sslclient")),
                           ("island", ("sslclient",))):
            self.issue(role, "x", role, *(
                ["--host", "s.example.org"] if role == "server" else []))
            for use in ("sslserver", "sslclient"):
                done = subprocess.run(
                    ["openssl", "verify", "-x509_strict", "-purpose", use,
                     "-CAfile", "ca/ca.crt", role + "/tls.crt"],
                    cwd=self.directory, stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT, text=True, check=False)
                self.assertEqual(done.returncode == 0, use in uses,
                                 done.stdout)

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
        files = {}
        for name in ("tls.crt", "tls.key", "ca.crt"):
            with open(self.path("certs", "attic", name), "rb") as file:
                files[name] = file.read()
        self.assertEqual({k: base64.b64decode(v)
                          for k, v in secret["data"].items()}, files)
        self.assertEqual(sorted(api.requests[0][2]["data"]),
                         ["ca.crt", "ca.key"])
        again = self.publish("--api", api.url, "--existing", "ca")
        self.assertEqual(again.stdout.count("already there"), 2)

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
        done = self.publish("--api", api.url, api_ca="other/ca.crt", check=None)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("--api-ca other/ca.crt", done.stderr)
        self.assertEqual(api.requests, [])
        done = self.publish("--api", "http://127.0.0.1:1", check=None)
        self.assertIn("https://", done.stderr)


if __name__ == "__main__":
    cases.main()
