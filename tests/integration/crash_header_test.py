#!/usr/bin/python3
"""Headers that gRPC gives a meaning of its own, with values that it cannot use.

The program may answer or refuse such a call. It lives, and answers others' calls.
The first one ended the process (CVE-2023-1428).
"""

from harness import cases
from harness import gated
from harness import raw_http2
from harness import run_file
from harness import wait

HEADERS = [
    ("grpclb_client_stats", "x"),
    ("grpclb_client_stats", ""),
    ("lb-token", "x"),
    ("lb-cost-bin", "x"),
    ("endpoint-load-metrics-bin", b"\xff\0"),
    ("x-endpoint-load-metrics-bin", "!"),
    ("grpc-server-stats-bin", "!"),
    ("grpc-trace-bin", b"\xff\xff"),
    ("grpc-tags-bin", "A"),
    ("grpc-status-details-bin", "===="),
    ("x-garbage-bin", b"\0\xff\x80"),
] + [
    # Base64 of four bytes that are no message of these.
    (name, "/////w") for name in (
        "lb-cost-bin", "endpoint-load-metrics-bin", "grpc-server-stats-bin",
        "grpc-trace-bin", "grpc-tags-bin", "grpc-status-details-bin")
] + [
    ("x-envoy-peer-metadata", b"\xff"),
    ("grpc-previous-rpc-attempts", "x"),
    ("grpc-previous-rpc-attempts", "99999999999999999999"),
    ("grpc-retry-pushback-ms", "x"),
    ("grpc-timeout", "x"),
    ("grpc-timeout", "99999999H"),
    ("grpc-timeout", "-1S"),
    ("grpc-timeout", "99999999999999999999n"),
    ("grpc-encoding", "x"),
    ("grpc-encoding", b"\xff"),
    ("grpc-accept-encoding", ",,x"),
    ("grpc-internal-encoding-request", "x"),
    ("grpc-status", "x"),
    ("grpc-status", "-1"),
    ("grpc-message", "%"),
    ("grpc-message", b"%\xff"),
    ("te", "x"),
    ("content-type", "x"),
    ("host", b"\xff"),
    ("user-agent", b"\xff"),
    ("atoll-session", b"\xff"),
    ("transfer-encoding", "chunked"),
    ("connection", "close"),
    (":path", "/"),
    (":method", "x"),
    (":scheme", "x"),
    (":authority", b"\xff"),
    (":status", "x"),
    (":x", "x"),
    ("X", "x"),
    ("", ""),
]

# The headers of CVE-2023-1428, with others: together they exceed the limit.
TOO_MANY = [("x-fill-%d" % i, "y" * 90) for i in range(300)]
LONG = [[header] + TOO_MANY for header in (
    ("grpclb_client_stats", "x"), ("te", "x"), (":scheme", "x"))]

CALLS = {
    "coordinator": ["/atoll.v1.RunService/GetRun",
                    "/grpc.health.v1.Health/Check", "/no.Service/Method"],
    "server-0": ["/atoll.v1.ParameterService/PullParameters"],
}


class CrashHeaderTest(gated.GatedTest):

    def test_no_header_of_a_certificate_ends_a_program(self):
        self.start(server_count=1)
        self.create_run(run_file.ELASTIC)
        self.cluster.start_volunteer("volunteer-0", self.token(),
                                     arguments=["--island-id=attic"])
        wait.until("it is a member", lambda: len(self.cluster.islands()) == 1)
        certificate = self.enrolled("volunteer-0")
        self.send_all(certificate)
        self.cluster.may_end("volunteer-0")
        self.cluster.run_cli("island", "revoke", "run", "e-attic", check=0)
        self.cluster.processes["volunteer-0"].wait()
        self.send_all(certificate)

    def send_all(self, certificate):
        for program, paths in CALLS.items():
            address = (self.cluster.coordinator_address
                       if program == "coordinator"
                       else self.cluster.server_address(program))
            others = self.caller(address, self.security.certificate(
                self.security.issue("operator", "test")))
            self.assertEqual(others.health(), 1)
            for path in paths:
                for headers in [[header] for header in HEADERS] + LONG:
                    with self.subTest(path=path, header=headers[0],
                                      count=len(headers)):
                        self.send(address, path, headers, certificate)
                        self.cluster.check_alive()
                        # On the connection that it had before.
                        self.assertEqual(others.health(), 1)

    def send(self, address, path, headers, certificate):
        call = raw_http2.RawCall(address, path, metadata=headers,
                                 certificate=certificate)
        try:
            call.send(raw_http2.message(b""), end=True)
            wait.until("the call ends", lambda: not call.look(0.05))
        finally:
            call.close()


if __name__ == "__main__":
    cases.main()
