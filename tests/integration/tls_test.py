#!/usr/bin/python3
"""Mutual TLS between real processes: who may connect, and who may call what."""

import json
import os
import re
import shlex
import shutil
import subprocess

import grpc

from harness import cases
from harness import certificates
from harness import client
from harness import cluster as cluster_module
from harness import processes
from harness import toy
from harness import wait

ROLES = ("operator", "island", "server", "reader", "coordinator", "gate")
# Those whose certificates name hosts.
LISTENERS = ("coordinator", "server", "gate")
DENIED = grpc.StatusCode.PERMISSION_DENIED
FORBIDDEN = 7


class Security:
    """One authority, and a certificate for every process of a cluster."""

    def __init__(self, directory):
        self.authority = certificates.Authority(directory)
        self._issued = {}

    def certificate(self, role, name, **kwargs):
        key = (role, name)
        if key not in self._issued:
            self._issued[key] = self.authority.issue(
                "atoll:%s:%s" % key, dialled=role in LISTENERS, **kwargs)
        return self._issued[key]

    def of_process(self, process):
        role = {"cli": "operator", "coordinator": "coordinator"}.get(
            process, "island" if process.startswith("island") else "server")
        # The processes ISLAND.0, ISLAND.1 share their island's certificate.
        return self.certificate(role, process.split(".")[0])

    def flags(self, process):
        """The TLS flags of a process, for harness/cluster.py."""
        return self.of_process(process).flags

    @property
    def credentials(self):
        return self.certificate("operator", "test").credentials


class ReadmeSecurity:
    """Certificates made as README.md describes, for loopback."""

    def __init__(self, directory):
        os.makedirs(directory)
        self._directory = directory
        with open(processes.source("README.md"), encoding="utf-8") as file:
            lines = re.search(r'^    atoll ca init.*?--out kitchen$',
                              file.read(), re.M | re.S).group(0)
        script = "atoll() { %s \"$@\"; }\n%s" % (
            shlex.quote(processes.binary(processes.CLI)),
            re.sub(r"--host \S+", "--host 127.0.0.1", lines))
        done = subprocess.run(["bash", "-e", "-c", script], cwd=directory,
                              stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert done.returncode == 0, done.stdout

    def certificate(self, name):
        return certificates.Certificate(*(
            os.path.join(self._directory, name, file)
            for file in ("tls.crt", "tls.key", "ca.crt")))

    def flags(self, process):
        return ["--tls-dir=" + os.path.join(
            self._directory, "anna" if process == "cli" else process)]

    @property
    def credentials(self):
        return self.certificate("anna").credentials


class TlsTest(cluster_module.IntegrationTest):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.security = Security(os.path.join(cls.root, "ca"))

    def setUp(self):
        super().setUp()
        self.cluster = self.new_cluster("tls", self.security)
        self.impostor_count = 0

    def start(self, server_count=1):
        """Starts a toy run of one island, with a port for every class of caller."""
        self.cluster.start_coordinator_with_own_ports()
        self.cluster.start_servers(server_count)
        toy.create(self.cluster, {
            "server_count": server_count,
            "schedule": {"min_quorum": 1, "island_count_min": 1}})
        self.cluster.wait_state(cluster_module.ACTIVE)

    def caller(self, address, role, name="somebody"):
        # With clientAuth for every role, so that the role alone decides.
        made = client.Client(address, self.security.certificate(
            role, name, uses="clientAuth").credentials)
        self.addCleanup(made.close)
        return made

    def addresses(self):
        cluster = self.cluster
        return [cluster.coordinator_address] + [
            cluster.dialled_by(who) for who in ("island", "server", "query")
        ] + [cluster.server_address(s) for s in cluster.server_ids]

    # --- Who may call what ------------------------------------------------------

    def test_a_run_completes_and_its_export_is_what_the_servers_hold(self):
        cluster = self.cluster
        cluster.start_coordinator_with_own_ports()
        self.assertEqual(len(set(self.addresses())), 4)
        cluster.start_servers(2)
        values = self.run_values({"schedule": {
            "island_count_min": 2, "min_quorum": 2}})
        cluster.create_run(values)
        cluster.start_islands(count=2)
        cluster.wait_state(cluster_module.COMPLETED)
        self.assert_strict_run_whole(cluster, values)
        self.assertEqual(cluster.export_sha256(), cluster.parameters_sha256())

    def test_the_processes_of_an_island_meet_by_its_own_key(self):
        cluster = self.cluster
        cluster.start_coordinator()
        cluster.start_servers(1)
        values = self.run_values({
            "server_count": 1, "data": {"data_shard_count": 1},
            "schedule": {"min_quorum": 1, "island_count_min": 1,
                         "round_count": 2}})
        cluster.create_run(values)
        cluster.start_mesh_island("island-0", "dp_shard=2", 2)
        cluster.wait_state(cluster_module.COMPLETED)
        self.assert_strict_run_whole(cluster, values)
        # They needed no machine secret.
        self.assertFalse(os.path.exists(os.path.join(
            cluster.directory, "state", "atoll", "rendezvous.secret")))

    def test_every_method_of_every_port_obeys_the_table_of_roles(self):
        self.start()
        allowed = read_role_table()
        seen = set()
        for address in self.addresses():
            names = self.cluster.client(address).schema.service_names()
            for role in ROLES:
                caller = self.caller(address, role)
                # All callers may use reflection and health.
                self.assertEqual(caller.health(), 1)
                for name in names:
                    if not name.startswith("atoll."):
                        self.assertIn(name, _FOR_ALL)
                        continue
                    service = caller.full_service(name)
                    for method in service.method_names:
                        seen.add((name, method))
                        self.check_cell(getattr(service, method), role,
                                        role in allowed(name, method),
                                        (address, name, method))
        # The table and the served methods are the same set.
        self.assertEqual(seen, allowed.methods(seen))
        self.assertGreater(len(seen), 20)
        self.assertEqual(self.cluster.run_state().run.state,
                         cluster_module.ACTIVE)

    def check_cell(self, method, role, is_allowed, where):
        """Calls with an empty message: the role is checked before it."""
        request = method.request_class()
        if method.kind.startswith("stream"):
            request = iter([request])
        error = None
        try:
            answer = method(request)
            if method.kind.endswith("stream"):
                next(iter(answer), None)
                answer.cancel()
        except grpc.RpcError as failure:
            error = client.protocols.ErrorDetails(failure)
        # A refusal by role has no reason (proto/ERRORS.md).
        denied = error is not None and (error.code, error.reason) == (DENIED,
                                                                      "")
        self.assertEqual(denied, not is_allowed, (where, role, str(error)))
        if error is not None and not denied:
            # An unrelated failure must not hide the result.
            self.assertNotIn(error.code, (
                grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNAUTHENTICATED,
                grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNKNOWN,
                grpc.StatusCode.DEADLINE_EXCEEDED), (where, role, str(error)))

    def test_a_method_of_no_service_runs_for_no_role(self):
        self.start()
        for role in ROLES:
            for path in ("/atoll.v1.RunService/Nothing", "/a/b"):
                error = client.error_of(self.caller(
                    self.cluster.coordinator_address, role).raw_call, path)
                self.assertEqual(error.code, grpc.StatusCode.UNIMPLEMENTED,
                                 (role, path))

    def test_a_name_that_is_no_role_may_not_even_ask_for_health(self):
        self.cluster.start_coordinator()
        for name in ("atoll:admin:root", "atoll:operator", "operator",
                     "atoll:operator:a b", "x:operator:a", "atoll:OPERATOR:a"):
            certificate = self.security.authority.issue(name)
            caller = client.Client(self.cluster.coordinator_address,
                                   certificate.credentials)
            self.addCleanup(caller.close)
            error = client.error_of(caller.health)
            self.assertEqual(error.code, grpc.StatusCode.UNAUTHENTICATED,
                             (name, str(error)))
            error = client.error_of(caller.raw_call,
                                    "/atoll.v1.RunService/ListRuns")
            self.assertEqual(error.code, grpc.StatusCode.UNAUTHENTICATED,
                             (name, str(error)))

    def test_a_reader_cannot_pause_and_is_told_what_would_help(self):
        self.start()

        def atoll(role, *arguments):
            flags = self.security.certificate(role, "somebody").flags
            done = processes.run_cli(
                *arguments, "--coordinator", self.cluster.coordinator_address,
                "-o", "json", *flags)
            return done.returncode, json.loads(done.stdout)

        status, envelope = atoll("reader", "run", "pause", "run")
        self.assertEqual((status, envelope["exit_code"]), (FORBIDDEN,) * 2)
        error = envelope["error"]
        self.assertEqual(error["code"], "PERMISSION_DENIED")
        for word in ("reader", "PauseRun"):
            self.assertIn(word, error["message"])
        self.assertIn("operator", error["hint"])
        self.assertEqual(self.cluster.run_state().run.state,
                         cluster_module.ACTIVE)
        self.assertEqual(atoll("reader", "run", "list")[0], 0)
        self.assertEqual(atoll("operator", "run", "pause", "run")[0], 0)
        self.assertEqual(self.cluster.run_state().run.state,
                         cluster_module.PAUSED)

    def test_the_readmes_certificates_are_enough(self):
        security = ReadmeSecurity(os.path.join(self.root, "readme-ca"))
        cluster = self.new_cluster("readme", security)
        cluster.start_coordinator()
        cluster.start_server("s0")
        cluster.create_run(self.run_values({
            "server_count": 1,
            "schedule": {"round_count": 2, "min_quorum": 1,
                         "island_count_min": 1}}))
        # The default island id is the certificate's.
        join = ("join", cluster.coordinator_address, "--threads=1", "--dir",
                os.path.join(cluster.directory, "kitchen"),
                *security.flags("kitchen"))
        processes.run_cli(*join, "--run=run", check=0)
        self.assertEqual([i.island_id for i in cluster.islands()], ["kitchen"])
        # It may not list runs; the error says to give --run.
        done = processes.run_cli(*join, check=FORBIDDEN)
        self.assertIn("--run", done.stderr)
        mixed = (security.certificate("anna").flags[:1] +
                 security.flags("kitchen"))
        done = processes.run_cli("run", "list", "--coordinator",
                                 cluster.coordinator_address, *mixed)
        self.assertIn("is not the key of the certificate", done.stderr)

    def test_a_revoked_certificate_is_refused_on_an_open_connection(self):
        directory = os.path.join(self.root, "revoked-ca")
        security = ReadmeSecurity(directory)
        cluster = self.new_cluster("revoked", security)
        cluster.start_coordinator()
        held = client.Client(cluster.coordinator_address,
                             security.credentials)
        self.addCleanup(held.close)
        runs = held.service("RunService")
        runs.ListRuns()
        processes.run_cli("ca", "revoke", "--dir", "ca", "operator:anna",
                          cwd=directory, check=0)
        runs.ListRuns()  # The list is not there yet.
        watch = held.raw_stream("/grpc.health.v1.Health/Watch")
        next(watch)
        shutil.copy(os.path.join(directory, "ca", "crl.pem"),
                    os.path.join(directory, "coordinator"))

        def refused():
            try:
                runs.ListRuns()
            except grpc.RpcError as error:
                # Its connection is shut first if it was open then.
                if error.code() != grpc.StatusCode.UNAVAILABLE:
                    return error
            return None

        error = wait.until("the list is read", refused)
        with self.assertRaises(grpc.RpcError) as ended:
            next(watch)
        self.assertEqual(ended.exception.code(), grpc.StatusCode.UNAVAILABLE)
        self.assertEqual(error.code(), grpc.StatusCode.UNAUTHENTICATED)
        self.assertIn("was revoked", error.details())
        done = cluster.run_cli("run", "list")
        self.assertEqual(done.returncode, FORBIDDEN, done.stderr)
        self.assertIn("was revoked", done.stderr)
        # The same name with a new certificate is welcome.
        processes.run_cli("ca", "issue", "--dir", "ca", "--role", "operator",
                          "--id", "anna", "--out", "anna2", cwd=directory,
                          check=0)
        processes.run_cli("run", "list", "--coordinator",
                          cluster.coordinator_address, "--tls-dir", "anna2",
                          cwd=directory, check=0)

    def test_a_gates_key_makes_no_operator_where_the_root_is_trusted(self):
        directory = os.path.join(self.root, "root-trust")
        security = ReadmeSecurity(directory)
        processes.run_cli("ca", "issue", "--dir", "ca", "--role", "gate",
                          "--id", "g0", "--host", "127.0.0.1", "--out", "gate",
                          cwd=directory, check=0)
        coordinator = security.certificate("coordinator")
        coordinator.ca = os.path.join(directory, "ca", "root.crt")
        security.flags = lambda process: coordinator.flags
        cluster = self.new_cluster("root-trust", security)
        cluster.start_coordinator()
        with open(cluster.processes["coordinator"].log_path,
                  encoding="utf-8") as file:
            self.assertIn("may sign CAs", file.read())
        work = os.path.join(directory, "thief")
        os.makedirs(work)
        gate = os.path.join(directory, "gate")
        thief = certificates.Authority.of(
            work, os.path.join(gate, "island-ca.crt"),
            os.path.join(gate, "island-ca.key"), coordinator.ca
        ).issue("atoll:operator:eve")
        with open(thief.cert, "a", encoding="ascii") as chain:
            with open(os.path.join(gate, "island-ca.crt"),
                      encoding="ascii") as file:
                chain.write(file.read())
        caller = client.Client(cluster.coordinator_address, thief.credentials)
        self.addCleanup(caller.close)
        error = client.error_of(
            lambda: caller.service("RunService").ListRuns())
        self.assertEqual(error.code, grpc.StatusCode.UNAUTHENTICATED,
                         str(error))

    # --- Whose objects ----------------------------------------------------------

    def assert_not_yours(self, call, *args, **kwargs):
        error = client.error_of(call, *args, **kwargs)
        self.assertEqual((error.code, error.reason), (DENIED, "NOT_YOURS"),
                         str(error))

    def test_an_island_acts_for_no_other_island(self):
        self.start()
        cluster = self.cluster
        # The caller has the victim's epoch and secret, but not its certificate.
        victim = cluster.join("run", "island-0")
        thief = self.caller(cluster.dialled_by("island"), "island", "thief")
        service = thief.service("IslandService")
        for name in service.method_names:
            if name == "SignDataUrls":  # For a run; it acts for no island.
                continue
            with self.subTest(method=name):
                method = getattr(service, name)
                known = method.request_class.DESCRIPTOR.fields_by_name
                self.assert_not_yours(
                    method, metadata=victim.metadata,
                    **{k: v for k, v in victim.who.items() if k in known})
        victim.ready()
        victim.wait_open(0)
        push = victim.contribution(victim.random_values("a"), 0)
        data = self.caller(cluster.server_address("server-0"), "island",
                           "thief").service("ParameterService")
        header = data.PushOuterGradient.request_class(header=push.header(0))
        self.assert_not_yours(data.PushOuterGradient, [header],
                              metadata=victim.metadata)
        own = self.caller(cluster.server_address("server-0"), "island",
                          "island-0").service("ParameterService")
        answer = own.PushOuterGradient(iter([header]),
                                       metadata=victim.metadata)
        self.assertTrue(next(iter(answer)).missing)
        answer.cancel()
        self.assertEqual([i.island_id for i in cluster.islands()],
                         ["island-0"])

    def test_a_server_acts_for_no_other_server(self):
        self.start()
        thief = self.caller(self.cluster.dialled_by("server"), "server",
                            "thief").service("ServerService")
        for name in thief.method_names:
            with self.subTest(method=name):
                self.assert_not_yours(getattr(thief, name),
                                      server_id="server-0",
                                      incarnation=1 << 60)

    # --- Who gets in ------------------------------------------------------------

    def assert_kept_out(self, credentials):
        """Checks that no port answers, not even health."""
        for address in self.addresses():
            stranger = client.Client(address, credentials)
            error = client.error_of(stranger.health)
            stranger.close()
            self.assertEqual(error.code, grpc.StatusCode.UNAVAILABLE,
                             (address, str(error)))

    def test_only_a_valid_certificate_of_this_authority_gets_in(self):
        self.start()
        good = self.security
        for address in self.addresses():
            self.assertEqual(self.caller(address, "reader").health(), 1)
        with self.subTest("plaintext"):
            self.assert_kept_out(None)
        with self.subTest("no certificate"):
            self.assert_kept_out(
                good.authority.credentials_without_certificate)
        with self.subTest("a certificate of another authority"):
            other = certificates.Authority(os.path.join(
                self.cluster.directory, "other-ca"))
            stranger = other.issue("atoll:operator:stranger")
            # It trusts our authority, so the server must refuse it.
            self.assert_kept_out(certificates.Certificate(
                stranger.cert, stranger.key, good.authority.ca).credentials)
        with self.subTest("an expired certificate"):
            self.assert_kept_out(good.authority.issue(
                "atoll:operator:yesterday", days=-1).credentials)

    def test_a_caller_trusts_no_server_of_another_authority(self):
        self.cluster.start_coordinator()
        other = certificates.Authority(os.path.join(
            self.cluster.directory, "other-ca"))
        mine = self.security.certificate("operator", "cli")
        done = processes.run_cli(
            "run", "list", "--coordinator", self.cluster.coordinator_address,
            "-o", "json", "--timeout", "10s", *certificates.Certificate(
                mine.cert, mine.key, other.ca).flags, check=FORBIDDEN)
        self.assertIn("certificate", done.stdout)

    # --- Whom callers trust -----------------------------------------------------

    def start_impostor(self, program, certificate, *flags):
        """Starts a listener with `certificate` and returns its address."""
        name = "impostor-%d" % self.impostor_count
        self.impostor_count += 1
        data = os.path.join(self.cluster.directory, name)
        if program == processes.COORDINATOR:
            processes.init_coordinator(data)
        port_file = data + ".port"
        process = processes.Process(
            name, [processes.binary(program), "--listen=127.0.0.1:0",
                   "--data-dir=" + data, "--port-file=" + port_file, *flags] +
            certificate.flags, data + ".log")
        self.addCleanup(process.stop)
        return process, port_file

    def refused_by(self, address):
        """What `atoll run list` says about the coordinator at `address`."""
        done = processes.run_cli(
            "run", "list", "--coordinator", address, "-o", "json",
            "--timeout", "10s", *self.security.flags("cli"), check=FORBIDDEN)
        return json.loads(done.stdout)["error"]["message"]

    def test_no_other_certificate_of_the_authority_passes_as_the_coordinators(
            self):
        issue = self.security.authority.issue
        for certificate, words in (
                (issue("atoll:island:x", dialled=True, uses="serverAuth"),
                 "is atoll:island:x, not a coordinator's"),
                (issue("atoll:server:x", dialled=True),
                 "is atoll:server:x, not a coordinator's"),
                (issue("atoll:coordinator:x"), "is not for the host")):
            with self.subTest(words=words):
                process, port_file = self.start_impostor(
                    processes.COORDINATOR, certificate)
                address = "127.0.0.1:%d" % processes.read_port(
                    process, port_file)
                message = self.refused_by(address)
                self.assertIn(words, message)
                self.assertIn(address, message)
                # A server does not register there, an island does not join.
                server, _ = self.start_impostor(
                    processes.SERVER,
                    self.security.certificate("server", "s"),
                    "--server-id=s", "--coordinator=" + address)
                island = processes.Process(
                    "island", [processes.binary(processes.CLI), "join",
                               address, "--run=run", "--dir",
                               self.root + "/join"] +
                    self.security.flags("island-0"),
                    self.root + "/join.log")
                self.addCleanup(island.stop)
                for refused in (server, island):
                    wait.until("it says why it waits",
                               lambda: words in refused.tail(200))
                    refused.stop()

    def test_a_listener_needs_a_certificate_that_may_serve(self):
        issue = self.security.authority.issue
        for uses in ("", "clientAuth"):
            process, _ = self.start_impostor(
                processes.COORDINATOR,
                issue("atoll:coordinator:c", dialled=True, uses=uses))
            self.assertNotEqual(process.wait(), 0)
            for word in ("--tls-cert", "serverAuth"):
                self.assertIn(word, process.tail())

    def test_a_caller_needs_a_certificate_that_may_call(self):
        self.start()
        issue = self.security.authority.issue
        with self.subTest("it may only serve"):
            self.assert_kept_out(issue("atoll:operator:ada",
                                       uses="serverAuth").credentials)
        unusable = issue("atoll:operator:ada", uses="")
        for address in self.addresses():
            stranger = client.Client(address, unusable.credentials)
            self.addCleanup(stranger.close)
            error = client.error_of(stranger.health)
            self.assertEqual(error.code, grpc.StatusCode.UNAUTHENTICATED)
        done = processes.run_cli(
            "run", "list", "--coordinator", self.cluster.coordinator_address,
            *unusable.flags, check=FORBIDDEN)
        for word in ("--tls-cert", "clientAuth"):
            self.assertIn(word, done.stderr)

    # --- Certificates that change -----------------------------------------------

    def test_a_run_goes_on_while_every_certificate_is_replaced(self):
        security = Security(os.path.join(self.root, "rotation-ca"))
        cluster = self.new_cluster("rotation", security)
        cluster.start_coordinator()
        cluster.start_servers(2)
        values = self.run_values({"schedule": {
            "island_count_min": 2, "min_quorum": 2}})
        cluster.create_run(values)
        islands = ["island-0", "island-1"]
        cluster.wait_state(cluster_module.ACTIVE)
        # So that the run does not end first; streams and heartbeats go on.
        cluster.run_cli("run", "pause", "run", check=0)
        cluster.start_islands(count=2)
        wait.until("both islands are ready", lambda: (
            [i.state for i in cluster.islands()] ==
            [cluster_module.READY] * 2))
        for process in ["coordinator"] + cluster.server_ids + islands:
            used = security.of_process(process)
            name = used.common_name
            new = security.authority.issue(
                name, dialled=name.split(":")[1] in LISTENERS)
            # Half of a file first: it changes nothing.
            with open(new.cert, "rb") as file:
                half = file.read()[:200]
            with open(used.cert, "wb") as file:
                file.write(half)
            cluster.run_cli("run", "show", "run", check=0)
            new.take_place_of(used)
            # The next connection, or the next call, uses it.
            cluster.run_cli("run", "show", "run", check=0)
            wait.until("%s uses its new certificate" % process, lambda: (
                "uses the new certificate of " + used.cert in
                cluster.processes[process].tail(1000)))
        cluster.run_cli("run", "resume", "run", check=0)
        cluster.wait_state(cluster_module.COMPLETED)
        self.assert_strict_run_whole(cluster, values)
        self.assertEqual(cluster.export_sha256(), cluster.parameters_sha256())
        for island in islands:  # No membership was cut.
            self.assertNotIn("joining again",
                             cluster.processes[island].tail(1000))

    def test_an_expired_certificate_is_named_before_anything_is_dialled(self):
        expired = self.security.authority.issue("atoll:operator:yesterday",
                                                days=-1, dialled=True)
        done = processes.run_cli(
            "run", "list", "--coordinator", "127.0.0.1:1", "-o", "json",
            *expired.flags, check=FORBIDDEN)
        error = json.loads(done.stdout)["error"]
        for word in ("--tls-cert", expired.cert, "expired"):
            self.assertIn(word, error["message"])
        for program, arguments in (
                (processes.COORDINATOR, []),
                (processes.SERVER, ["--server-id=a",
                                    "--coordinator=127.0.0.1:1"])):
            process = processes.Process(
                "expired", [processes.binary(program), "--listen=127.0.0.1:0",
                            "--data-dir=" + self.root + "/expired"] +
                arguments + expired.flags, self.root + "/expired.log")
            self.addCleanup(process.stop)
            self.assertNotEqual(process.wait(), 0)
            self.assertIn("expired", process.tail())


class _RoleTable:
    """A table of roles: who may call (service, method)."""

    def __init__(self, rows):
        # [(service, method or "all", roles)]; the first that fits counts.
        self._rows = rows

    def __call__(self, service, method):
        for row_service, row_method, roles in self._rows:
            if service == row_service and row_method in (method, "all"):
                return roles
        return ()

    def methods(self, served):
        """The methods of its rows; "all" means all of a service in `served`."""
        named = set()
        for service, method, _ in self._rows:
            named |= {m for m in served if m[0] == service} \
                if method == "all" else {(service, method)}
        return named


_FOR_ALL = ("grpc.health.v1.Health",
            "grpc.reflection.v1alpha.ServerReflection")


def read_role_table():
    """The table of proto/ISLAND.md, section 2."""
    with open(processes.source("proto/ISLAND.md"), encoding="utf-8") as file:
        text = file.read()
    head = re.search(r"\| method \|(.+)\|\n", text)
    roles = [r.strip() for r in head.group(1).split("|")]
    assert sorted(roles) == sorted(ROLES), roles
    rows = []
    for line in text[head.end():].splitlines()[1:]:
        if not line.startswith("|"):
            break
        what, *cells = [c.strip() for c in line.strip("|").split("|")]
        may = [r for r, cell in zip(roles, cells) if cell == "yes"]
        if what == "health, reflection":
            assert sorted(may) == sorted(ROLES)
            continue
        service, methods = what.split(":")
        rows += [("atoll.v1." + service, m.strip().removesuffix(" others"),
                  may) for m in methods.split(",")]
    assert len(rows) > 12, rows
    return _RoleTable(rows)


if __name__ == "__main__":
    cases.main()
