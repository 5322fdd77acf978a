#!/usr/bin/python3
"""A gate, tokens, and islands that have nothing but a join string."""

import json
import os
import pty
import re
import signal
import socket
import ssl
import struct
import subprocess
import time

import grpc

from harness import arithmetic
from harness import cases
from harness import certificates
from harness import client
from harness import cluster as cluster_module
from harness import cutter
from harness import gated
from harness import metrics
from harness import processes
from harness import run_file
from harness import toy
from harness import wait

DENIED = grpc.StatusCode.PERMISSION_DENIED
USAGE, FORBIDDEN, CONFLICT = 2, 7, 9
# For runs without an end: a push takes half a second of waiting.
SLOWLY = ["--up=2Mb/s"]

# One push of 7.6 MB. A push that the server refuses sends far less than
# HELD_AFTER bytes, so a relay holds none that has not begun.
ONE_PUSH = {
    "server_count": 1,
    "model": {"hidden_size": 256, "intermediate_size": 512, "layer_count": 3},
    "schedule": {"round_count": 1, "inner_step_count": 1},
    "evaluation": {"every_round_count": 0},
}
HELD_AFTER = 4_000_000
SERVER_LEASE_S = 3


class EnrolmentTest(gated.GatedTest):

    # --- A run ------------------------------------------------------------------

    def test_a_run_beyond_what_the_machine_lends_is_not_joined(self):
        self.start()
        self.create_run()
        string = self.token()
        for flags, text in ((["--memory=1MB"], "--memory lends 1.0 MB"),
                            (["--disk=1kB"], "--disk lends 1.0 kB")):
            refused = self.join(string, *flags, check=10)
            self.assertIn(text, refused.stderr)
        self.assertEqual(list(self.cluster.islands()), [])

    def test_a_string_is_all_that_a_volunteer_needs(self):
        cluster = self.cluster
        self.start()
        values = self.create_run({"schedule": {
            "island_count_min": 2, "min_quorum": 2}})
        strings = [self.token(), self.token("--name=attic")]
        for index, string in enumerate(strings):
            cluster.start_volunteer("volunteer-%d" % index, string)
        cluster.wait_state(cluster_module.COMPLETED)
        names = {i.island_id for i in cluster.islands()}
        self.assertIn("e-attic", names)
        self.assertRegex(" ".join(names), r"\be-island-[0-9a-f]{6}\b")
        self.assert_rounds_whole(cluster, values)
        self.assertEqual(cluster.export_sha256(), cluster.parameters_sha256())
        for name in ("volunteer-0", "volunteer-1"):
            self.assertEqual(cluster.processes[name].wait(), 0)
        events = self.audit()
        self.assertEqual([e["action"] for e in events], [
            "run.create", "token.create", "token.create", "island.enrol",
            "island.enrol"])
        for event in events:
            self.assertRegex(event["actor_certificate_sha256"],
                             "^[0-9a-f]{64}$")
        self.assertEqual({e["actor"] for e in events},
                         {"operator:cli", "gate:g0"})
        # The secret is nowhere but in the string.
        certificate = self.enrolled("volunteer-0")
        self.assertEqual(os.stat(certificate.key).st_mode & 0o777, 0o600)

    def test_a_wrapped_string_is_pasted_at_a_terminal(self):
        self.start()
        self.create_run()
        string = self.token()
        terminal, child = pty.openpty()
        process = subprocess.Popen(
            [processes.binary(processes.CLI), "doctor", "-", "-o", "json"],
            stdin=child, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True, text=True, env={
                **os.environ, "XDG_STATE_HOME": os.path.join(
                    self.cluster.directory, "state")})
        try:
            prompt = ""
            while not prompt.endswith("press Enter: "):
                prompt += process.stderr.read(1)
                self.assertIsNone(process.poll(), prompt)
            os.write(terminal, ("<%s\r\r%s\r%s>\rexit\r" % (
                string[:40], string[40:90], string[90:])).encode())
            out, _ = process.communicate(timeout=wait.PATIENCE_S)
            checks = {c["id"]: c["result"]
                      for c in json.loads(out)["data"]["checks"]}
            self.assertEqual(checks["token"], "PASSED")
            # Nothing was shown, and nothing is left for a shell.
            for end in (terminal, child):
                os.set_blocking(end, False)
                with self.assertRaises(BlockingIOError):
                    os.read(end, 1)
        finally:
            process.kill()
            process.communicate()
            os.close(terminal)
            os.close(child)

    def test_a_lost_join_string_is_told(self):
        self.start()
        self.create_run()
        with open("/dev/full", "w", encoding="ascii") as full:
            done = self.cluster.run_cli("token", "create", "--run", "run",
                                        check=1, stdout=full)
        self.assertRegex(done.stderr,
                         r"token [a-z0-9]{12} exists, but its join string")
        token_id = re.search(r"atoll token revoke ([a-z0-9]{12})",
                             done.stderr).group(1)
        self.cluster.run_cli("token", "revoke", token_id, check=0)

    def test_it_needs_no_string_the_next_time(self):
        cluster = self.cluster
        self.start()
        self.create_run({"schedule": {"round_count": 1000000}})
        cluster.start_volunteer("volunteer-0", self.token(), arguments=SLOWLY)
        cluster.wait_commits(1)
        cluster.kill("volunteer-0")
        cluster.start_volunteer("volunteer-0", "--run=run")
        cluster.wait_commits(cluster.run_state().commit_seq + 2)
        self.assertEqual(self.actions().count("island.enrol"), 1)
        self.assertEqual(len(cluster.islands()), 1)

    # --- A share of weight ------------------------------------------------------

    def test_two_names_of_one_limited_token_do_not_own_the_commits(self):
        cluster = self.cluster
        self.start()
        self.create_run(run_file.ELASTIC)
        string = self.token("--uses=2", "--weight-share=0.05")
        for name in ("volunteer-0", "volunteer-1"):
            cluster.start_volunteer(name, string)

        def together():
            cluster.check_alive()
            merged = [[c.weight for c in r.contributions
                       if c.outcome == cluster_module.MERGED]
                      for r in cluster.rounds()]
            return merged if [2] * 3 == [
                len(m) for m in merged if len(m) == 2][:3] else None

        for weights in wait.until("both are merged in three rounds", together):
            self.assertAlmostEqual(sum(weights), 0.05, places=6)
        # An island of the operator's own has the rest.
        cluster.start_island("run", "island-0")

        def with_own():
            cluster.check_alive()
            for r in cluster.rounds():
                merged = {c.island_id: c.weight for c in r.contributions
                          if c.outcome == cluster_module.MERGED}
                if "island-0" in merged and len(merged) > 1:
                    return merged
            return None

        merged = wait.until("a round has the own island too", with_own)
        self.assertGreater(merged["island-0"], 0.949)
        self.assertAlmostEqual(sum(merged.values()), 1, places=6)
        cluster.run_cli("run", "cancel", "run", check=0)

    def test_two_names_of_one_limited_token_are_no_quorum(self):
        cluster = self.cluster
        self.start()
        self.create_run(run_file.ELASTIC, {"schedule": {
            "island_count_min": 3, "min_quorum": 2}})
        cluster.start_island("run", "island-0")
        wait.until("the own island has joined", cluster.islands)
        string = self.token("--uses=2", "--weight-share=0.05")
        for name in ("volunteer-0", "volunteer-1"):
            cluster.start_volunteer(name, string)
        cluster.wait_commits(2)
        cluster.kill("island-0")

        def waits():
            cluster.check_alive()
            for r in cluster.rounds():
                self.assertIn("island-0", [
                    c.island_id for c in r.contributions
                    if c.outcome == cluster_module.MERGED])
            return re.search("(count|:) 1 of 2 (for|contributions are there)",
                             cluster.run_state().run.state_reason)

        wait.until("the two that are left count once", waits)

    def test_a_token_that_does_not_fit_its_run_is_refused(self):
        cluster = self.cluster
        self.start(server_count=1)

        def reason(run_id, *arguments):
            done = cluster.run_cli("token", "create", "--run", run_id,
                                   *arguments, "-o", "json", check=CONFLICT)
            return json.loads(done.stdout)["error"]["reason"]

        one = {"server_count": 1, "outer": {"enrolled_norm_factor": 0.0}}
        self.create_run(one, {"schedule": {"island_count_min": 2,
                                           "min_quorum": 2}}, run_id="pair")
        self.assertEqual(reason("pair"), "NO_NORM_BOUND")
        self.assertEqual(reason("pair", "--uses=2", "--weight-share=0.2"),
                         "QUORUM_UNREACHABLE")
        self.token("--accept-unbounded", run_id="pair")
        self.create_run(one, {"outer": {"merge": {"rule": "median"}}},
                        run_id="median")
        self.assertEqual(reason("median", "--weight-share=0.2"),
                         "WEIGHT_SHARE_UNUSED")
        toy.create(cluster, {"server_count": 1, "durability": 3},
                   run_id="island")
        self.assertEqual(reason("island"), "ISLAND_DURABILITY")

    # --- A reader ---------------------------------------------------------------

    def test_a_readers_string_queries_one_run_and_changes_nothing(self):
        cluster = self.cluster
        self.start(server_count=1, gate=["--certificate-s=6"])
        self.create_run({"server_count": 1})
        self.create_run({"server_count": 1}, run_id="other")
        string = self.token("--role=reader", "--name=anna")
        state = {"XDG_STATE_HOME": os.path.join(cluster.directory, "reader")}

        def enrol(text, check, *arguments):
            return processes.run_cli("enrol", "-", *arguments, env=state,
                                     text_in=text + "\n", check=check).stdout

        text = enrol(string, 0)
        self.assertEqual([l for l in text.splitlines()
                          if len(l) > 80 and " " in l], [])
        data = json.loads(enrol(string, 0, "-o", "json"))["data"]
        self.assertEqual((data["run_id"], data["role"], data["name"]),
                         ("run", "reader", "e-anna"))
        self.assertIn(data["profile"], text)
        self.assertEqual(self.actions().count("island.enrol"), 1)

        def read(*arguments, check=0):
            return processes.run_cli(*arguments, check=check, env=dict(
                state, ATOLL_PROFILE=data["profile"]))

        read("run", "show", "run")
        for arguments in (("run", "show", "other"), ("run", "cancel", "run"),
                          ("run", "list")):
            read(*arguments, check=FORBIDDEN)
        # A string that enrols the other role says so, and costs no use.
        island = self.token()
        error = json.loads(enrol(island, FORBIDDEN, "-o", "json"))["error"]
        self.assertEqual(error["reason"], "TOKEN_OTHER_ROLE")
        self.assertIn("atoll join", error["message"])
        self.join(string, state="reader", check=USAGE)
        # A later command renews the certificate, also after its end.
        self.await_expiry(self.security.certificate(
            os.path.dirname(data["profile"])))
        self.assertIn("renewing", read("run", "show", "run").stderr)
        self.assertIn("island.renew", self.actions())
        cluster.run_cli("run", "cancel", "run", check=0)
        self.assertIn("cancelled", read("run", "watch", "run").stdout)
        # Without the gate an expired certificate is the error.
        cluster.kill("gate")
        self.await_expiry(self.security.certificate(
            os.path.dirname(data["profile"])))
        # In the moment of its end a peer may find that out first.
        wait.until("the certificate has expired", lambda: "expired" in
                   read("run", "show", "run", check=None).stderr)

    # --- Refusals ---------------------------------------------------------------

    def refused(self, string, reason, *arguments, status=FORBIDDEN,
                state="other"):
        done = self.join(string, "-o", "json", *arguments, state=state)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        error = json.loads(done.stdout)["error"]
        self.assertEqual(error["reason"], reason, error)
        self.assertNotIn(string.split(".")[-3], done.stdout + done.stderr)
        return error["message"]

    def test_each_refusal_says_what_to_do(self):
        cluster = self.cluster
        self.start(server_count=1)
        self.create_run({"server_count": 1,
                         "schedule": {"round_count": 1000000}})
        self.create_run({"server_count": 1}, run_id="other")
        used = self.token()
        cluster.start_volunteer("volunteer-0", used, arguments=SLOWLY)
        cluster.wait_commits(1)
        self.assertIn("1 of 1", self.refused(used, "TOKEN_USED"))
        expired = self.token("--ttl=1s")
        wait.until("the token has expired", lambda: "expired" in
                   cluster.run_cli("token", "list", check=0).stdout)
        self.assertIn("expired", self.refused(expired, "TOKEN_EXPIRED"))
        revoked = self.token()
        cluster.run_cli("token", "revoke",
                        re.search("atj1_(.{12})", revoked).group(1), check=0)
        self.refused(revoked, "TOKEN_REVOKED")
        good = self.token("--name=lab-*", "--uses=9")
        self.refused(self.forge(good), "WRONG_TOKEN")
        self.refused(good.replace("/run#", "/other#"), "TOKEN_OTHER_RUN")
        self.assertIn("lab-*", self.refused(good, "TOKEN_OTHER_NAME",
                                            "--island-id=attic"))
        reader = self.token("--role=reader")
        self.refused(reader, "TOKEN_OTHER_ROLE")
        # A cut or mistyped string is refused here, before any call.
        for wrong in (good[:-1], good[:-1] + ("0" if good[-1] != "0" else "1"),
                      "atoll://x", "atoll://127.0.0.1:1/run#atj1_x"):
            self.join(wrong, check=USAGE)
        # The pin is checked before anything is said: the gate sees no token.
        head, pin, crc = good.rsplit(".", 2)
        other = self.with_crc(head + "." + "A" * 43)
        message = self.refused(other, "WRONG_PIN")
        self.assertIn(pin, message)
        self.assertEqual(self.actions().count("island.enrol"), 1)
        listed = cluster.run_cli("token", "list", check=0).stdout
        for state in ("used", "expired", "revoked", "valid"):
            self.assertIn(state, listed)
        self.assertTrue(all(len(l) <= 80 for l in listed.splitlines()), listed)

    @staticmethod
    def with_crc(text):
        body = text[text.index("atj1_"):]
        return "%s.%08x" % (text, _crc32c(body.encode()))

    def forge(self, string):
        """Another secret, with a checksum that fits."""
        head, secret, pin, _ = string.rsplit(".", 3)
        flipped = ("A" if secret[0] != "A" else "B") + secret[1:]
        return self.with_crc("%s.%s.%s" % (head, flipped, pin))

    def assert_for_one_run_and_one_role(self, attic):
        """`attic`: the certificate of e-attic in run "run"."""
        cluster = self.cluster
        toy.create(cluster, {"server_count": 1, "schedule": {
            "min_quorum": 1, "island_count_min": 1}}, run_id="other")
        cluster.wait_state(cluster_module.ACTIVE, "other")
        control = self.caller(cluster.coordinator_address, attic)
        data = self.caller(cluster.server_address("server-0"), attic)

        def reason(call, *args, **kwargs):
            error = client.error_of(call, *args, **kwargs)
            self.assertEqual(error.code, DENIED, str(error))
            return error.reason

        runs = control.service("RunService")
        self.assertEqual(runs.GetRun(run_id="run").run.run_id, "run")
        self.assertEqual(reason(runs.GetRun, run_id="other"), "NOT_YOUR_RUN")
        islands = control.service("IslandService")
        self.assertEqual(reason(islands.Join, run_id="other",
                                island_id="e-attic"), "NOT_YOUR_RUN")
        self.assertEqual(reason(islands.Join, run_id="run",
                                island_id="cellar"), "NOT_YOURS")
        watch = islands.WatchPlan(run_id="other", island_id="e-attic")
        self.assertEqual(reason(lambda: next(iter(watch))), "NOT_YOUR_RUN")
        parameters = data.service("ParameterService")
        pull = parameters.PullParameters(run_id="other")
        self.assertEqual(reason(lambda: next(iter(pull))), "NOT_YOUR_RUN")
        header = parameters.PushOuterGradient.request_class()
        header.header.run_id, header.header.island_id = "other", "e-attic"
        push = parameters.PushOuterGradient(iter([header]))
        self.assertEqual(reason(lambda: next(iter(push))), "NOT_YOUR_RUN")
        # By role: neither an operator, nor a server, nor a gate.
        self.assertEqual(reason(runs.CancelRun, run_id="run"), "")
        self.assertEqual(reason(control.service("ServerService")
                                .RegisterServer), "")
        enrolment = control.service("EnrolmentService")
        self.assertEqual(reason(enrolment.ConsumeToken), "")
        # The gate's own certificate enrols, and does nothing else.
        gate = self.caller(cluster.coordinator_address,
                           self.security.certificate(self.gate_dir))
        self.assertEqual(reason(gate.service("RunService").CancelRun,
                                run_id="run"), "")
        self.assertEqual(reason(gate.service("EnrolmentService").CreateToken),
                         "")

    def test_what_the_gates_key_signs_is_no_operator(self):
        cluster = self.cluster
        self.start(server_count=1)
        self.create_run({"server_count": 1})
        root = os.path.join(self.cluster.directory, "thief")
        os.makedirs(root)
        thief = certificates.Authority.of(
            root, os.path.join(self.gate_dir, "island-ca.crt"),
            os.path.join(self.gate_dir, "island-ca.key"),
            os.path.join(self.gate_dir, "ca.crt"))
        for name in ("atoll:operator:anna", "atoll:server:server-0",
                     "atoll:coordinator:c", "atoll:gate:g1",
                     "atoll:island:attic"):
            caller = self.caller(cluster.coordinator_address,
                                 thief.issue(name, uses="clientAuth"))
            error = client.error_of(
                lambda: caller.service("RunService").GetRun(run_id="run"))
            self.assertEqual(error.code, grpc.StatusCode.UNAUTHENTICATED,
                             (name, str(error)))

    def test_a_revoked_island_ends_and_does_not_return(self):
        cluster = self.cluster
        self.start()
        self.create_run(run_file.ELASTIC)
        token = self.token("--uses=5")
        cluster.start_volunteer("volunteer-0", token,
                                arguments=["--island-id=attic"])
        cluster.start_volunteer("volunteer-1", token,
                                arguments=["--island-id=cellar"])
        wait.until("both are members", lambda: len(cluster.islands()) == 2)
        attic = self.enrolled("volunteer-0")
        cluster.may_end("volunteer-0")
        cluster.run_cli("island", "revoke", "run", "e-attic", check=0)
        self.assertEqual(cluster.processes["volunteer-0"].wait(), FORBIDDEN)
        self.assertIn("revoked", cluster.processes["volunteer-0"].tail())
        for address, service, method in (
                (cluster.coordinator_address, "RunService", "GetRun"),
                (cluster.server_address("server-0"), "ParameterService",
                 "PullParameters")):
            call = getattr(self.caller(address, attic).service(service),
                           method)

            def answered():
                try:
                    answer = call(run_id="run")
                    if method == "PullParameters":
                        next(iter(answer))
                except grpc.RpcError as error:
                    return client.protocols.ErrorDetails(error)
                return None

            # A server learns of it with its next plan.
            error = wait.until("the call is refused", answered)
            self.assertEqual((error.code, error.reason), (DENIED, "REVOKED"),
                             str(error))
        cluster.run_cli("island", "readmit", "run", "e-attic", check=FORBIDDEN)
        self.refused(token, "REVOKED", "--island-id=attic")
        cluster.wait_commits(cluster.run_state().commit_seq + 2)

    # --- Certificates that end --------------------------------------------------

    def await_expiry(self, certificate):
        """Waits for the end of a certificate whose file does not change."""
        probe = self.caller(self.cluster.coordinator_address, certificate)

        def expired():
            try:
                probe.service("RunService").GetRun(run_id="run")
            except grpc.RpcError as error:
                return error.code() == grpc.StatusCode.UNAUTHENTICATED
            return False

        wait.until("the certificate has expired", expired)

    def test_certificates_are_renewed_while_a_run_goes_on(self):
        cluster = self.cluster
        self.start(gate=["--certificate-s=6"])
        self.create_run({"schedule": {"round_count": 1000000}})
        cluster.start_volunteer("volunteer-0", self.token(), arguments=SLOWLY)
        cluster.wait_commits(1)

        def renewed(count):
            return lambda: self.actions().count("island.renew") >= count

        wait.until("it is renewed twice", renewed(2))
        # Those of the services too: each is one file, read again.
        for path in ("coordinator-coordinator", "server-server-0",
                     "server-server-1", "gate-g0"):
            processes.run_cli("ca", "renew", "--dir", self.security.ca,
                              os.path.join(os.path.dirname(self.security.ca),
                                           path), check=0)
        count = self.actions().count("island.renew")
        seq = cluster.run_state().commit_seq
        wait.until("it is renewed again", renewed(count + 2))
        cluster.wait_commits(seq + 1)
        log = open(cluster.processes["volunteer-0"].log_path).read()
        self.assertNotIn("expired", log)

    def test_an_island_that_slept_past_its_certificate_goes_on(self):
        cluster = self.cluster
        self.start(gate=["--certificate-s=6"])
        self.create_run(run_file.ELASTIC)
        cluster.start_volunteer("volunteer-0", self.token("--name=attic"))
        cluster.wait_commits(1)
        cluster.processes["volunteer-0"].signal(signal.SIGSTOP)
        certificate = self.enrolled("volunteer-0")
        self.await_expiry(certificate)
        seq = cluster.run_state().commit_seq
        cluster.processes["volunteer-0"].signal(signal.SIGCONT)
        cluster.wait_commits(seq + 2)
        self.assertEqual([i.island_id for i in cluster.islands()], ["e-attic"])

    # --- A coordinator that is away ---------------------------------------------

    def test_a_transfer_goes_on_while_the_coordinator_is_away(self):
        cluster = self.cluster
        relay = cutter.Holder(HELD_AFTER)
        self.addCleanup(relay.close)
        cluster.start_coordinator(
            arguments=["--server-lease-s=%d" % SERVER_LEASE_S])
        cluster.start_gate(self.gate_dir)
        cluster.start_server("server-0", arguments=[
            "--advertise=" + relay.address,
            *metrics.flags(cluster, "server-0")])
        server = cluster.server_address("server-0")
        relay.forward_to(server)
        values = self.create_run(ONE_PUSH)
        layout = arithmetic.LayoutView(cluster.spec().layout)
        push_bytes = 4 * layout.fragments[0].element_count
        cluster.start_volunteer("volunteer-0", self.token("--name=attic"),
                                arguments=["--streams=1"])
        port = metrics.port(cluster, "server-0")

        def pushed():
            """Bytes that the server has, once the relay holds the rest."""
            cluster.check_alive()
            return relay.held.is_set() and metrics.scrape(port).total(
                "atoll_push_bytes_total")

        self.assertLess(wait.until("a part of its push is there", pushed),
                        push_bytes)
        cluster.kill("coordinator")
        attic = self.enrolled("volunteer-0")
        pull = self.caller(server, attic).service(
            "ParameterService").PullParameters

        def new_streams_wait():
            error = client.error_or_none(
                lambda: next(iter(pull(run_id="run"))))
            return error is not None and error.reason == "PLAN_TOO_OLD"

        wait.until("the server's lease is over", new_streams_wait)
        # The server looks at open streams once a second.
        end = time.monotonic() + 3
        wait.until("it has looked", lambda: time.monotonic() > end)
        relay.let_go()
        wait.until("the whole push is there", lambda: pushed() == push_bytes)

        cluster.restart("coordinator")
        cluster.wait_state(cluster_module.COMPLETED)
        self.assert_strict_run_whole(cluster, values)
        self.assertEqual(cluster.processes["volunteer-0"].wait(), 0)
        self.assertEqual(pushed(), push_bytes)
        with self.subTest("its certificate is for one run and one role"):
            self.assert_for_one_run_and_one_role(attic)

    # --- Deaths -----------------------------------------------------------------

    def test_a_gate_that_dies_loses_no_use(self):
        for point in ("gate.consume.before", "gate.consume.after",
                      "gate.sign.after"):
            with self.subTest(point=point):
                cluster = self.new_cluster(point, self.security)
                self.cluster = cluster
                cluster.start_coordinator()
                cluster.start_gate(self.gate_dir, failpoint=point)
                cluster.start_servers(1)
                self.create_run({"server_count": 1,
                                 "schedule": {"round_count": 1000000}})
                string = self.token()
                state = "volunteer-0.state"
                done = self.join(string, state=state)
                self.assertNotEqual(done.returncode, 0)
                cluster.await_failpoint("gate")
                cluster.start_gate(self.gate_dir)
                cluster.start_volunteer("volunteer-0", string,
                                        arguments=SLOWLY)
                cluster.wait_commits(1)
                self.assertEqual(self.actions().count("island.enrol"), 1)
                self.refused(string, "TOKEN_USED")
                cluster.close()

    # --- Strangers --------------------------------------------------------------

    def test_bad_requests_cost_the_gate_little(self):
        cluster = self.cluster
        self.start(server_count=1)
        self.create_run({"server_count": 1})
        good = self.token()
        address = cluster.gate_address.split(":")
        address = (address[0], int(address[1]))

        def talk(send, tls=True):
            """What the gate answers; b"" if it closes."""
            with socket.create_connection(address,
                                          timeout=wait.PATIENCE_S) as raw:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
                try:
                    if not tls:
                        raw.sendall(send)
                        return raw.recv(1 << 16)
                    with context.wrap_socket(raw) as wrapped:
                        self.assertEqual(wrapped.version(), "TLSv1.3")
                        wrapped.sendall(send)
                        return wrapped.recv(1 << 16)
                except (ssl.SSLError, ConnectionError):
                    return b""

        talk(b"GET / HTTP/1.1\r\n\r\n", tls=False)
        for bytes_ in (b"GET / HTTP/1.1\r\n\r\n",
                       struct.pack(">I", 1 << 30), struct.pack(">I", 0),
                       struct.pack(">I", 5) + b"\xff" * 5,
                       b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"):
            talk(bytes_)
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with socket.create_connection(address,
                                      timeout=wait.PATIENCE_S) as raw:
            with self.assertRaises((ssl.SSLError, ConnectionError)):
                old.wrap_socket(raw)
        cluster.start_volunteer("volunteer-0", good)
        cluster.wait_state(cluster_module.COMPLETED)


def _crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


if __name__ == "__main__":
    cases.main()
