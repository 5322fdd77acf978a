#!/usr/bin/python3
"""Callers that make a program log as fast as they can fill no disk."""

import os
import socket

import grpc

from harness import cases
from harness import gated
from harness import run_file
from harness import wait

# Each makes gRPC or protobuf log a line of 100 bytes or more.
TRIES = 2000
# Far below TRIES lines, far above what a program logs by itself meanwhile.
LOG_BYTES_MAX = 64 << 10

# A request whose run_id is not UTF-8: protobuf's parser logs that.
MALFORMED = b"\x0a\x04\xff\xfe\xfd\xfc"


class LogFloodTest(gated.GatedTest):

    def addresses(self):
        return {"coordinator": self.cluster.coordinator_address,
                "server-0": self.cluster.server_address("server-0")}

    def log(self, program):
        with open(self.cluster.processes[program].log_path,
                  errors="replace") as file:
            return file.read()

    def assert_bounded(self, program, attack):
        path = self.cluster.processes[program].log_path
        before = os.path.getsize(path)
        attack()
        self.cluster.check_alive()
        self.assertLess(os.path.getsize(path) - before, LOG_BYTES_MAX, program)

    def call_often(self, caller, path):
        codes = set()
        for _ in range(TRIES):
            try:
                caller.raw_call(path, message=MALFORMED)
                self.fail("a malformed request was answered")
            except grpc.RpcError as error:
                codes.add(error.code())
        self.assertNotIn(grpc.StatusCode.DEADLINE_EXCEEDED, codes)
        return codes

    def test_a_stranger_without_tls_is_counted_not_told_each_time(self):
        self.start(server_count=1)
        for program, address in self.addresses().items():
            host, port = address.rsplit(":", 1)

            def attack(host=host, port=int(port)):
                for _ in range(TRIES):
                    with socket.create_connection(
                            (host, port), timeout=wait.PATIENCE_S) as stranger:
                        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
                        try:
                            while stranger.recv(4096):
                                pass
                        except ConnectionError:
                            pass

            self.assert_bounded(program, attack)
            wait.until("%s tells how many" % program, lambda p=program: (
                " more of these\n" in self.log(p)))

    def test_a_certificate_fills_no_log_before_and_after_it_is_revoked(self):
        cluster = self.cluster
        self.start(server_count=1)
        self.create_run(run_file.ELASTIC)
        cluster.start_volunteer("volunteer-0", self.token(),
                                arguments=["--island-id=attic"])
        wait.until("it is a member", lambda: len(cluster.islands()) == 1)
        island = self.enrolled("volunteer-0")
        paths = {"coordinator": "/atoll.v1.RunService/GetRun",
                 "server-0": "/atoll.v1.ParameterService/PullParameters"}

        def flood(certificate):
            for program, address in self.addresses().items():
                caller = self.caller(address, certificate)
                self.assert_bounded(program, lambda c=caller, p=program: (
                    self.call_often(c, paths[p])))

        # An operator's request is parsed.
        flood(self.security.certificate(
            self.security.issue("operator", "test")))
        wait.until("protobuf's lines are counted", lambda: (
            "protobuf: " in self.log("coordinator") and
            " more of these\n" in self.log("coordinator")))
        self.assertNotIn("[libprotobuf", self.log("coordinator"))
        flood(island)
        cluster.may_end("volunteer-0")
        cluster.run_cli("island", "revoke", "run", "e-attic", check=0)
        cluster.processes["volunteer-0"].wait()
        flood(island)


if __name__ == "__main__":
    cases.main()
