#include "base/rpc/listener.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "atoll/v1/run_service.grpc.pb.h"
#include "base/host_port/host_port.h"
#include "base/rpc/authorization.h"
#include "base/rpc/call.h"
#include "base/rpc/certificates/authority.h"
#include "base/rpc/certificates/x509.h"
#include "base/rpc/channel.h"
#include "base/rpc/testing/health.h"
#include "base/rpc/testing/raw_calls.h"
#include "base/rpc/testing/test_certificates.h"
#include "base/status/refusal.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"

namespace atl::rpc {
namespace {

// GetRun returns the name of its caller.
class RunServiceDouble : public v1::RunService::CallbackService {
 public:
  grpc::ServerUnaryReactor* GetRun(grpc::CallbackServerContext* context,
                                   const v1::GetRunRequest* request,
                                   v1::GetRunResponse* response) override {
    return Finish(*context, Answer(*context, *request, *response));
  }
  grpc::ServerUnaryReactor* CreateRun(grpc::CallbackServerContext* context,
                                      const v1::CreateRunRequest*,
                                      v1::CreateRunResponse*) override {
    return Finish(*context, grpc::Status::OK);
  }

  std::atomic<int> call_count{0};

 private:
  grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext& context,
                                   const grpc::Status& status) {
    ++call_count;
    grpc::ServerUnaryReactor* const reactor = context.DefaultReactor();
    reactor->Finish(status);
    return reactor;
  }

  static grpc::Status Answer(const grpc::CallbackServerContext& context,
                             const v1::GetRunRequest& request,
                             v1::GetRunResponse& response) {
    if (request.run_id() == "fail") {
      return ToGrpc(InvalidFields({{"run_id", "is \"fail\""}}));
    }
    const auto caller = GetCaller(context);
    if (!caller.ok()) return ToGrpc(caller.status());
    response.mutable_run()->set_run_id(
        request.run_id() == "name"
            ? GetCallerName(context)
            : absl::StrCat(RoleName(caller->role), "/", caller->id));
    return grpc::Status::OK;
  }
};

class ListenerTest : public ::testing::Test {
 protected:
  ListenerTest() : directory_(MakeTestDirectory()), authority_(directory_) {}

  std::unique_ptr<RpcServer> Start(const ListenerOptions& listener) {
    RpcServer::Spec spec;
    spec.listener = listener;
    spec.services = {&service_};
    auto server = RpcServer::Start(spec);
    EXPECT_TRUE(server.ok()) << server.status();
    return server.ok() ? *std::move(server) : nullptr;
  }

  absl::StatusOr<std::string> GetRun(const RpcServer& server,
                                     const TlsFiles& tls,
                                     const std::string& run_id = "run") {
    ChannelOptions options;
    options.tls = tls;
    const auto channel = MakeChannel(server.address(), options);
    if (!channel.ok()) return channel.status();
    const auto stub = v1::RunService::NewStub(*channel);
    v1::GetRunRequest request;
    request.set_run_id(run_id);
    const auto response =
        Call(*stub, &v1::RunService::Stub::GetRun, request,
             CallOptions{absl::Minutes(2), "", "coordinator"});
    if (!response.ok()) return response.status();
    return response->run().run_id();
  }

  // As GetRun, by a client that does not check its own certificate.
  absl::Status GetRunAsStranger(const RpcServer& server,
                                const TlsFiles& tls) {
    const TlsMaterial material = ReadTlsFiles(tls).value();
    const auto channel = grpc::CreateChannel(
        server.address(),
        grpc::SslCredentials(
            {material.ca_pem, material.key_pem, material.cert_pem}));
    const auto stub = v1::RunService::NewStub(channel);
    return Call(*stub, &v1::RunService::Stub::GetRun, v1::GetRunRequest(),
                CallOptions{absl::Minutes(2), "", "coordinator"})
        .status();
  }

  absl::Status CreateRun(const RpcServer& server, const TlsFiles& tls) {
    ChannelOptions options;
    options.tls = tls;
    const auto channel = MakeChannel(server.address(), options);
    if (!channel.ok()) return channel.status();
    const auto stub = v1::RunService::NewStub(*channel);
    return Call(*stub, &v1::RunService::Stub::CreateRun, v1::CreateRunRequest(),
                CallOptions{absl::Minutes(2), "", "coordinator"})
        .status();
  }

  const std::string directory_;
  TestAuthority authority_;
  RunServiceDouble service_;
};

// --- Whether it starts -------------------------------------------------------

TEST_F(ListenerTest, RefusesPlaintextOffLoopbackAndNamesTheFlags) {
  for (const char* address :
       {"0.0.0.0:0", "10.1.2.3:7070", "[::]:0", "coordinator.example:7070"}) {
    ListenerOptions options;
    options.address = address;
    const absl::Status status = CheckListener(options);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    for (const char* flag :
         {"--tls-cert", "--tls-key", "--tls-ca", "--insecure"}) {
      EXPECT_TRUE(absl::StrContains(status.message(), flag)) << status;
    }
    RpcServer::Spec spec;
    spec.listener = options;
    EXPECT_EQ(RpcServer::Start(spec).status(), status);
    options.insecure = true;
    EXPECT_TRUE(CheckListener(options).ok());
  }
}

TEST_F(ListenerTest, RefusesHalfOfTlsAndTlsWithInsecure) {
  ListenerOptions options;
  options.tls.cert = "cert.pem";
  EXPECT_EQ(CheckListener(options).code(), absl::StatusCode::kInvalidArgument);
  options.tls = {"c", "k", "a"};
  options.insecure = true;
  EXPECT_EQ(CheckListener(options).code(), absl::StatusCode::kInvalidArgument);
  options.insecure = false;
  EXPECT_TRUE(CheckListener(options).ok());
}

TEST_F(ListenerTest, SaysThatAPortIsTaken) {
  const auto first = Start({});
  ASSERT_NE(first, nullptr);
  RpcServer::Spec spec;
  spec.listener.address = first->address();
  spec.services = {&service_};
  const absl::Status status = RpcServer::Start(spec).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(status.message(), "the port is taken"))
      << status;
}

TEST_F(ListenerTest, RefusesAKeyOfAnotherCertificate) {
  const TlsFiles one = authority_.Issue("atoll:coordinator:one");
  const TlsFiles two = authority_.Issue("atoll:coordinator:two");
  RpcServer::Spec spec;
  spec.listener.tls = {one.cert, two.key, one.ca};
  spec.services = {&service_};
  EXPECT_FALSE(RpcServer::Start(spec).ok());
}

// --- Plaintext on loopback ---------------------------------------------------

TEST_F(ListenerTest, TakesEveryoneOnLoopbackForAnOperator) {
  const auto server = Start({});
  ASSERT_NE(server, nullptr);
  EXPECT_GT(server->port(), 0);
  EXPECT_EQ(server->address(), absl::StrCat("127.0.0.1:", server->port()));
  const auto who = GetRun(*server, {});
  ASSERT_TRUE(who.ok()) << who.status();
  EXPECT_EQ(*who, "operator/");
}

TEST_F(ListenerTest, CarriesErrorDetailsToTheCaller) {
  const auto server = Start({});
  const auto who = GetRun(*server, {}, "fail");
  EXPECT_EQ(who.status().code(), absl::StatusCode::kInvalidArgument);
  const auto violations = GetFieldViolations(who.status());
  ASSERT_EQ(violations.size(), 1);
  EXPECT_EQ(violations[0].field, "run_id");
}

TEST_F(ListenerTest, IsHealthyOnlyWhenTold) {
  const auto server = Start({});
  const auto channel = MakeChannel(server->address(), {});
  ASSERT_TRUE(channel.ok());
  EXPECT_EQ(CheckServing(*channel, absl::Minutes(2)).code(),
            absl::StatusCode::kUnavailable);
  server->SetServing(true);
  EXPECT_TRUE(CheckServing(*channel, absl::Minutes(2)).ok());
  server->SetServing(false);
  EXPECT_FALSE(CheckServing(*channel, absl::Minutes(2)).ok());
}

// A silent connection holds an open file, whoever the peer is.
TEST_F(ListenerTest, ClosesAConnectionThatSaysNothing) {
  RpcServer::Spec spec;
  spec.handshake_timeout = absl::Milliseconds(50);
  spec.keepalive_time = absl::Hours(1);  // Would close it, too.
  const auto server = RpcServer::Start(spec);
  ASSERT_TRUE(server.ok()) << server.status();
  const int peer = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_GE(peer, 0);
  const timeval patience = {120, 0};
  setsockopt(peer, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>((*server)->port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(connect(peer, reinterpret_cast<const sockaddr*>(&address),
                    sizeof(address)),
            0);
  // Our frames arrive first, then the end of the stream.
  char bytes[256];
  ssize_t count = 0;
  do {
    count = recv(peer, bytes, sizeof(bytes), 0);
  } while (count > 0);
  EXPECT_TRUE(count == 0 || errno == ECONNRESET) << errno;
  close(peer);
}

TEST_F(ListenerTest, RefusesCompressedMessagesBeforeTheyUnfold) {
  const auto server = Start({});
  const auto channel = MakeChannel(server->address(), {});
  const auto stub = v1::RunService::NewStub(*channel);
  for (const grpc_compression_algorithm algorithm :
       {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    grpc::ClientContext context;
    context.set_compression_algorithm(algorithm);
    v1::GetRunRequest request;
    request.set_run_id(std::string(3 << 20, 'a'));
    v1::GetRunResponse response;
    const grpc::Status status = stub->GetRun(&context, request, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED)
        << status.error_message();
  }
  EXPECT_EQ(service_.call_count, 0);
}

TEST_F(ListenerTest, RefusesMessagesBeyondTheLimit) {
  const auto server = Start({});
  grpc::ChannelArguments arguments;
  const auto channel = grpc::CreateCustomChannel(
      server->address(), grpc::InsecureChannelCredentials(), arguments);
  const auto stub = v1::RunService::NewStub(channel);
  grpc::ClientContext context;
  v1::GetRunRequest request;
  request.set_run_id(std::string(kControlMessageBytesMax, 'a'));
  v1::GetRunResponse response;
  EXPECT_EQ(stub->GetRun(&context, request, &response).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(service_.call_count, 0);
}

TEST_F(ListenerTest, RefusesBytesThatAreNoMessage) {
  const auto server = Start({});
  const auto channel = *MakeChannel(server->address(), {});
  EXPECT_EQ(CallAny(channel, "/atoll.v1.RunService/GetRun", "\xff"),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(CallAny(channel, "/atoll.v1.RunService/None", "\xff"),
            grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(service_.call_count, 0);
}

TEST_F(ListenerTest, StopsServingWhenStopped) {
  auto server = Start({});
  const std::string address = server->address();
  server->Stop();
  server->Stop();
  const auto channel = MakeChannel(address, {});
  EXPECT_EQ(CheckServing(*channel, absl::Minutes(2)).code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(ListenerTest, WillNotDialPlaintextOffLoopback) {
  const absl::Status refused = MakeChannel("10.1.2.3:7070", {}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(refused.message(), "ATOLL_TLS_DIR")) << refused;
  ChannelOptions options;
  options.insecure = true;
  EXPECT_TRUE(MakeChannel("10.1.2.3:7070", options).ok());
  EXPECT_EQ(MakeChannel("127.0.0.1:0", {}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// --- Mutual TLS --------------------------------------------------------------

TEST_F(ListenerTest, ADotThatEndsANameLeadsToThatHost) {
  ListenerOptions listener;
  listener.tls = authority_.Issue("atoll:coordinator:s-1");
  const auto server = Start(listener);
  ASSERT_NE(server, nullptr);
  server->SetServing(true);
  const HostPort address = ParseHostPort(server->address()).value();
  ChannelOptions options;
  options.tls = authority_.Issue("atoll:operator:ada");
  const auto channel =
      MakeChannel(absl::StrCat("LocalHost.:", address.port), options);
  ASSERT_TRUE(channel.ok()) << channel.status();
  const absl::Status asked = CheckServing(*channel, absl::Minutes(2));
  EXPECT_TRUE(asked.ok()) << asked;
}

TEST_F(ListenerTest, KnowsACallerByItsCertificate) {
  ListenerOptions options;
  options.tls = authority_.Issue("atoll:coordinator:s-1");
  const auto server = Start(options);
  ASSERT_NE(server, nullptr);
  const auto who = GetRun(*server, authority_.Issue("atoll:operator:ada"));
  ASSERT_TRUE(who.ok()) << who.status();
  EXPECT_EQ(*who, "operator/ada");
  const auto reader = GetRun(*server, authority_.Issue("atoll:reader:bob"));
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(*reader, "reader/bob");
}

TEST_F(ListenerTest, CallersCountByCertificateElseByHost) {
  const auto plaintext = Start({});
  const auto host = GetRun(*plaintext, {}, "name");
  ASSERT_TRUE(host.ok()) << host.status();
  EXPECT_EQ(*host, "ipv4:127.0.0.1");
  ListenerOptions options;
  options.tls = authority_.Issue("atoll:coordinator:s-1");
  const auto server = Start(options);
  const auto who =
      GetRun(*server, authority_.Issue("atoll:island:anna"), "name");
  ASSERT_TRUE(who.ok()) << who.status();
  EXPECT_EQ(*who, "island:anna");
}

TEST_F(ListenerTest, ChecksTheRoleBeforeAnyHandlerRuns) {
  ListenerOptions options;
  options.tls = authority_.Issue("atoll:coordinator:s-1");
  const auto server = Start(options);
  const absl::Status island =
      CreateRun(*server, authority_.Issue("atoll:island:i-1"));
  EXPECT_EQ(island.code(), absl::StatusCode::kPermissionDenied) << island;
  const auto stranger = GetRun(*server, authority_.Issue("somebody"));
  EXPECT_EQ(stranger.status().code(), absl::StatusCode::kUnauthenticated)
      << stranger.status();
  EXPECT_EQ(service_.call_count, 0);
}

TEST_F(ListenerTest, LetsNobodyInWithoutACertificateOfItsAuthority) {
  ListenerOptions options;
  options.tls = authority_.Issue("atoll:coordinator:s-1");
  const auto server = Start(options);
  EXPECT_EQ(GetRun(*server, {}).status().code(),
            absl::StatusCode::kUnavailable);
  const std::string elsewhere = directory_ + "/elsewhere";
  std::filesystem::create_directories(elsewhere);
  TestAuthority other(elsewhere);
  TlsFiles forged = other.Issue("atoll:operator:eve");
  forged.ca = options.tls.ca;  // It trusts the server, but not vice versa.
  EXPECT_EQ(GetRun(*server, forged).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(service_.call_count, 0);
}

TEST_F(ListenerTest, IsNotTrustedUnderAnotherAuthority) {
  const std::string elsewhere = directory_ + "/elsewhere";
  std::filesystem::create_directories(elsewhere);
  TestAuthority other(elsewhere);
  ListenerOptions options;
  options.tls = other.Issue("atoll:coordinator:s-1");
  options.tls.ca = authority_.Issue("atoll:coordinator:unused").ca;
  const auto server = Start(options);
  ASSERT_NE(server, nullptr);
  EXPECT_EQ(
      GetRun(*server, authority_.Issue("atoll:operator:ada")).status().code(),
      absl::StatusCode::kUnavailable);
  EXPECT_EQ(service_.call_count, 0);
}

CertificateSpec SpecOf(const std::string& name, bool server, bool client) {
  CertificateSpec spec = TestAuthority::DefaultSpec(name);
  spec.server_auth = server;
  spec.client_auth = client;
  return spec;
}

TEST_F(ListenerTest, RefusesCallsOfAConnectionWhoseCertificateHasExpired) {
  ListenerOptions options;
  options.tls = authority_.Issue("atoll:coordinator:c");
  const auto server = Start(options);
  CertificateSpec spec = TestAuthority::DefaultSpec("atoll:operator:ada");
  spec.end = absl::Now() + absl::Seconds(5);
  ChannelOptions caller;
  caller.tls = authority_.Issue(spec);
  const auto channel = MakeChannel(server->address(), caller).value();
  const auto stub = v1::RunService::NewStub(channel);
  const absl::Time give_up = absl::Now() + absl::Minutes(1);
  absl::Status status;
  while (status.ok() && absl::Now() < give_up) {
    status = Call(*stub, &v1::RunService::Stub::GetRun, v1::GetRunRequest(),
                  CallOptions{absl::Minutes(2), "", "coordinator"})
                 .status();
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "expired at")) << status;
  EXPECT_GT(service_.call_count, 0);
}

TEST_F(ListenerTest, RefusesCallersWithTwoCommonNames) {
  const KeyAndCertificate ca =
      MakeAuthority("ca", absl::Now() - absl::Minutes(1),
                    absl::Now() + absl::Hours(1))
          .value();
  const auto write = [&](const char* name, const std::string& text) {
    const std::string path = absl::StrCat(directory_, "/", name);
    std::ofstream(path) << text;
    return path;
  };
  const auto issue = [&](const char* name) {
    return IssueCertificate(ca, TestAuthority::DefaultSpec(name)).value();
  };
  const std::string ca_file = write("two.ca", ca.cert_pem);
  const KeyAndCertificate listens = issue("atoll:coordinator:c");
  ListenerOptions options;
  options.tls = {write("c.crt", listens.cert_pem),
                 write("c.key", listens.key_pem), ca_file};
  const auto server = Start(options);
  const KeyAndCertificate calls = issue("atoll:operator:ada");
  const TlsFiles one = {write("one.crt", calls.cert_pem),
                        write("one.key", calls.key_pem), ca_file};
  EXPECT_TRUE(GetRunAsStranger(*server, one).ok());

  const Certificate two = ReadFirstCertificate(calls.cert_pem);
  const std::string second = "atoll:island:x";
  ASSERT_EQ(X509_NAME_add_entry_by_NID(
                X509_get_subject_name(two.get()), NID_commonName, MBSTRING_UTF8,
                reinterpret_cast<const unsigned char*>(second.data()),
                static_cast<int>(second.size()), -1, 0),
            1);
  ASSERT_GT(X509_sign(two.get(), ReadPrivateKey(ca.key_pem).get(),
                      EVP_sha256()),
            0);
  const Bio bio(BIO_new(BIO_s_mem()));
  ASSERT_EQ(PEM_write_bio_X509(bio.get(), two.get()), 1);
  char* pem = nullptr;
  const long pem_bytes = BIO_get_mem_data(bio.get(), &pem);
  const absl::Status status = GetRunAsStranger(
      *server, {write("two.crt", std::string(pem, pem_bytes)), one.key,
                ca_file});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "one common name")) << status;
  EXPECT_EQ(service_.call_count, 1);
}

TEST_F(ListenerTest, RefusesCallersWhoseCertificateMayNotCall) {
  ListenerOptions options;
  options.tls = authority_.Issue("atoll:coordinator:c");
  const auto server = Start(options);
  for (const bool serves : {false, true}) {
    const TlsFiles files =
        authority_.Issue(SpecOf("atoll:operator:ada", serves, false));
    // Our own client says so before it dials.
    EXPECT_EQ(GetRun(*server, files).status().code(),
              absl::StatusCode::kUnauthenticated);
    // Another one gets no answer, or is told why.
    const absl::Status status = GetRunAsStranger(*server, files);
    EXPECT_EQ(status.code(), serves ? absl::StatusCode::kUnavailable
                                    : absl::StatusCode::kUnauthenticated)
        << status;
    EXPECT_EQ(absl::StrContains(status.message(), "it needs clientAuth"),
              !serves)
        << status;
  }
  EXPECT_EQ(service_.call_count, 0);
}

TEST_F(ListenerTest, WillNotServeWithACertificateThatMayNotServe) {
  RpcServer::Spec spec;
  spec.listener.tls =
      authority_.Issue(SpecOf("atoll:coordinator:c", false, true));
  const absl::Status status = RpcServer::Start(spec).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_TRUE(absl::StrContains(status.message(), "serverAuth")) << status;
}

TEST_F(ListenerTest, ACallerIsToldWhyItDoesNotTrustTheServer) {
  ListenerOptions options;
  options.tls = authority_.Issue("atoll:island:x");
  const auto server = Start(options);
  const absl::Status status =
      GetRun(*server, authority_.Issue("atoll:operator:ada")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(),
            absl::StrCat("coordinator: the certificate of ", server->address(),
                         " is atoll:island:x, not a coordinator's"));
  EXPECT_EQ(service_.call_count, 0);
}

// --- Certificates that change ------------------------------------------------

TEST_F(ListenerTest, NewConnectionsUseTheNewCertificateOfTheServer) {
  ListenerOptions options;
  options.tls = authority_.Issue("atoll:coordinator:one");
  const auto server = Start(options);
  const TlsFiles ada = authority_.Issue("atoll:operator:ada");
  EXPECT_TRUE(GetRun(*server, ada).ok());
  // A wrong one in between changes nothing.
  std::filesystem::copy_file(authority_.Issue("atoll:coordinator:x").cert,
                             options.tls.cert,
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_TRUE(GetRun(*server, ada).ok());
  // The role shows which certificate a caller sees.
  ReplaceTlsFiles(authority_.Issue("atoll:server:two"), options.tls);
  const absl::Status status = GetRun(*server, ada).status();
  EXPECT_TRUE(absl::StrContains(status.message(), "is atoll:server:two"))
      << status;
}

TEST_F(ListenerTest, NewCallsUseTheNewCertificateOfTheCaller) {
  ListenerOptions listener;
  listener.tls = authority_.Issue("atoll:coordinator:c");
  const auto server = Start(listener);
  ChannelOptions options;
  options.tls = authority_.Issue("atoll:operator:ada");
  const auto dialer = Dialer::Make(server->address(), options);
  ASSERT_TRUE(dialer.ok()) << dialer.status();
  const auto name = [&](const std::shared_ptr<grpc::Channel>& channel) {
    v1::GetRunRequest request;
    request.set_run_id("run");
    const auto stub = v1::RunService::NewStub(channel);
    return Call(*stub, &v1::RunService::Stub::GetRun, request,
                CallOptions{absl::Minutes(2), "", "coordinator"})
        .value()
        .run()
        .run_id();
  };
  const auto before = (*dialer)->channel();
  EXPECT_EQ(name(before), "operator/ada");
  EXPECT_EQ((*dialer)->channel(), before);
  ReplaceTlsFiles(authority_.Issue("atoll:reader:bob"), options.tls);
  EXPECT_EQ(name((*dialer)->channel()), "reader/bob");
  // Calls that hold the old channel go on.
  EXPECT_EQ(name(before), "operator/ada");
}

}  // namespace
}  // namespace atl::rpc
