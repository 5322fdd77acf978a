// A listener with an island CA: what a certificate of it is worth.

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "atoll/v1/run_service.grpc.pb.h"
#include "base/identity/identity.h"
#include "base/rpc/authorization.h"
#include "base/rpc/call.h"
#include "base/rpc/certificates/authority.h"
#include "base/rpc/certificates/revocation_list.h"
#include "base/rpc/certificates/tls.h"
#include "base/rpc/channel.h"
#include "base/rpc/listener.h"
#include "base/rpc/status.h"
#include "base/rpc/testing/test_certificates.h"
#include "base/status/status_macros.h"
#include "gtest/gtest.h"

namespace atl::rpc {
namespace {

// GetRun returns the scope of its caller.
class ScopeService : public v1::RunService::CallbackService {
 public:
  grpc::ServerUnaryReactor* GetRun(grpc::CallbackServerContext* context,
                                   const v1::GetRunRequest*,
                                   v1::GetRunResponse* response) override {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    const auto caller = GetCaller(*context);
    if (!caller.ok()) {
      reactor->Finish(ToGrpc(caller.status()));
      return reactor;
    }
    const RunScope& scope = caller->scope;
    response->mutable_run()->set_run_id(absl::StrCat(
        RoleName(caller->role), " ", caller->id, " of ",
        scope.any ? "any" : absl::StrJoin(scope.run_ids, ","), scope.cluster_id,
        scope.enrolled() ? "/" : "", scope.run_uid));
    response->mutable_run()->set_run_uid(GetCertificateSha256(*context));
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

class IslandCaTest : public ::testing::Test {
 protected:
  IslandCaTest()
      : directory_(MakeTestDirectory()), now_(absl::Now()) {
    root_ = MakeAuthority("root", now_ - absl::Minutes(1),
                          now_ + absl::Hours(1), /*path_length=*/1)
                .value();
    service_ca_ = MakeCa("service CA", /*client_only=*/false);
    island_ca_ = MakeCa("island CA", /*client_only=*/true);
    Write("root.crt", root_.cert_pem);
    Write("service-ca.crt", service_ca_.cert_pem);
    Write("island-ca.crt", island_ca_.cert_pem);
  }

  KeyAndCertificate MakeCa(const std::string& name, bool client_only) {
    CertificateSpec spec;
    spec.common_name = name;
    spec.client_auth = client_only;
    spec.begin = now_ - absl::Minutes(1);
    spec.end = now_ + absl::Hours(1);
    return IssueAuthority(root_, spec).value();
  }

  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = absl::StrCat(directory_, "/", name);
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  std::string Path(const std::string& name) const {
    return absl::StrCat(directory_, "/", name);
  }

  // The files of a certificate by `ca`, which trusts `trusted`.
  TlsFiles Issue(const KeyAndCertificate& ca, const std::string& common_name,
                 const std::vector<std::string>& uris = {},
                 const std::string& trusted = "service-ca.crt") {
    CertificateSpec spec;
    spec.common_name = common_name;
    spec.hosts = {"127.0.0.1"};
    spec.uris = uris;
    spec.server_auth = spec.client_auth = true;
    spec.begin = now_ - absl::Minutes(1);
    spec.end = now_ + absl::Hours(1);
    const KeyAndCertificate made = IssueCertificate(ca, spec).value();
    const std::string stem = absl::StrCat(++issued_count_);
    return {Write(stem + ".crt", made.cert_pem + ca.cert_pem),
            Write(stem + ".key", made.key_pem), Path(trusted)};
  }

  absl::StatusOr<std::unique_ptr<RpcServer>> Start(
      const std::string& trusted = "service-ca.crt") {
    RpcServer::Spec spec;
    spec.listener.tls =
        Issue(service_ca_, "atoll:coordinator:c", {}, trusted);
    spec.listener.tls.island_ca = Path("island-ca.crt");
    spec.services = {&service_};
    return RpcServer::Start(spec);
  }

  absl::StatusOr<v1::Run> GetRun(const RpcServer& server, const TlsFiles& tls) {
    ChannelOptions options;
    options.tls = tls;
    ASSIGN_OR_RETURN(const auto channel,
                     MakeChannel(server.address(), options));
    const auto stub = v1::RunService::NewStub(channel);
    ASSIGN_OR_RETURN(const v1::GetRunResponse response,
                     Call(*stub, &v1::RunService::Stub::GetRun,
                          v1::GetRunRequest(),
                          CallOptions{absl::Minutes(2), "", "coordinator"}));
    return response.run();
  }

  const std::string directory_;
  const absl::Time now_;
  KeyAndCertificate root_, service_ca_, island_ca_;
  ScopeService service_;
  int issued_count_ = 0;
};

TEST_F(IslandCaTest, LetsAnEnrolledIslandInForItsRun) {
  const auto server = Start();
  ASSERT_TRUE(server.ok()) << server.status();
  // An island knows only the root, which the join string pins.
  const auto run = GetRun(
      **server, Issue(island_ca_, "atoll:island:attic",
                      {MakeEnrolledUri("cluster", "uid", Role::kIsland,
                                       "attic")},
                      "root.crt"));
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->run_id(), "island attic of cluster/uid");
  EXPECT_EQ(run->run_uid().size(), 64);
}

TEST_F(IslandCaTest, LetsTheServiceCaNameAnyRole) {
  const auto server = Start();
  ASSERT_TRUE(server.ok()) << server.status();
  const auto anna = GetRun(**server, Issue(service_ca_, "atoll:operator:anna"));
  ASSERT_TRUE(anna.ok()) << anna.status();
  EXPECT_EQ(anna->run_id(), "operator anna of any");
  const auto attic =
      GetRun(**server, Issue(service_ca_, "atoll:island:attic",
                             {MakeRunUri("spring", Role::kIsland, "attic"),
                              MakeRunUri("autumn", Role::kIsland, "attic")}));
  ASSERT_TRUE(attic.ok()) << attic.status();
  EXPECT_EQ(attic->run_id(), "island attic of spring,autumn");
}

TEST_F(IslandCaTest, RefusesWhateverElseTheIslandCaSigns) {
  const auto server = Start();
  ASSERT_TRUE(server.ok()) << server.status();
  const std::vector<TlsFiles> kTable = {
      Issue(island_ca_, "atoll:operator:anna"),
      Issue(island_ca_, "atoll:server:s0"),
      Issue(island_ca_, "atoll:gate:g0"),
      Issue(island_ca_, "atoll:island:attic"),
      Issue(island_ca_, "atoll:island:attic",
            {MakeAnyRunUri(Role::kIsland, "attic")}),
      Issue(island_ca_, "atoll:island:attic",
            {MakeRunUri("spring", Role::kIsland, "attic")}),
      Issue(island_ca_, "atoll:island:attic",
            {MakeEnrolledUri("cluster", "uid", Role::kIsland, "cellar")}),
  };
  for (const TlsFiles& files : kTable) {
    const auto run = GetRun(**server, files);
    EXPECT_FALSE(run.ok()) << files.cert << ": " << run->run_id();
    EXPECT_EQ(run.status().code(), absl::StatusCode::kUnauthenticated)
        << files.cert << ": " << run.status();
  }
}

TEST_F(IslandCaTest, LooksAtTheCallersOwnCertificateWhateverElseIsSent) {
  const auto server = Start();
  ASSERT_TRUE(server.ok()) << server.status();
  for (const std::string& others :
       {std::string(), service_ca_.cert_pem, root_.cert_pem,
        service_ca_.cert_pem + island_ca_.cert_pem + root_.cert_pem}) {
    TlsFiles thief = Issue(island_ca_, "atoll:operator:anna");
    const TlsMaterial own = ReadTlsFiles(thief).value();
    thief.cert = Write("thief.crt",
                       own.cert_pem.substr(
                           0, own.cert_pem.find("-----END CERTIFICATE-----")) +
                           "-----END CERTIFICATE-----\n" + others);
    const auto run = GetRun(**server, thief);
    EXPECT_EQ(run.status().code(), absl::StatusCode::kUnauthenticated)
        << others.size() << ": " << run.status();
  }
}

TEST_F(IslandCaTest, PromotesNobodyWhenTheIslandCaIsReplaced) {
  const auto server = Start();
  ASSERT_TRUE(server.ok()) << server.status();
  const TlsFiles thief = Issue(island_ca_, "atoll:operator:anna");
  ChannelOptions options;
  options.tls = thief;
  const auto channel = MakeChannel((*server)->address(), options);
  ASSERT_TRUE(channel.ok()) << channel.status();
  const auto stub = v1::RunService::NewStub(*channel);
  const auto call = [&stub] {
    return Call(*stub, &v1::RunService::Stub::GetRun, v1::GetRunRequest(),
                CallOptions{absl::Minutes(2), "", "coordinator"})
        .status()
        .code();
  };
  EXPECT_EQ(call(), absl::StatusCode::kUnauthenticated);
  Write("island-ca.crt", MakeCa("the next", /*client_only=*/true).cert_pem);
  // A new connection makes the listener read its files.
  EXPECT_TRUE(GetRun(**server, Issue(service_ca_, "atoll:operator:ada")).ok());
  EXPECT_EQ(call(), absl::StatusCode::kUnauthenticated);
}

TEST_F(IslandCaTest, IsNoServerToAnybodyWhoTrustsTheRoot) {
  RpcServer::Spec spec;
  spec.listener.tls = Issue(island_ca_, "atoll:coordinator:c");
  spec.services = {&service_};
  const auto server = RpcServer::Start(spec);
  ASSERT_TRUE(server.ok()) << server.status();
  const auto run = GetRun(
      **server, Issue(service_ca_, "atoll:operator:anna", {}, "root.crt"));
  EXPECT_FALSE(run.ok());
  EXPECT_TRUE(absl::StrContains(run.status().message(), "refused"))
      << run.status();
}

TEST_F(IslandCaTest, LetsNobodyInThroughACaBelowTheTrustedOne) {
  RpcServer::Spec spec;
  spec.listener.tls = Issue(service_ca_, "atoll:coordinator:c", {}, "root.crt");
  spec.services = {&service_};
  const auto server = RpcServer::Start(spec);
  ASSERT_TRUE(server.ok()) << server.status();
  // What the holder of a gate's files can make.
  const auto thief = GetRun(
      **server, Issue(island_ca_, "atoll:operator:anna", {}, "root.crt"));
  EXPECT_EQ(thief.status().code(), absl::StatusCode::kUnauthenticated)
      << thief.status();
  EXPECT_TRUE(absl::StrContains(thief.status().message(), "direct issuer"))
      << thief.status();
  EXPECT_TRUE(GetRun(**server, Issue(root_, "atoll:operator:ada", {},
                                     "root.crt")).ok());
}

TEST_F(IslandCaTest, RefusesTheCallsOfARevokedCertificateOnAnOpenConnection) {
  const std::string directory = Path("dir");
  std::filesystem::create_directories(directory);
  RpcServer::Spec spec;
  const TlsFiles own = Issue(service_ca_, "atoll:coordinator:c");
  UseTlsDirectory(directory, spec.listener.tls);
  for (const auto& [from, to] :
       {std::pair(own.cert, spec.listener.tls.cert),
        std::pair(own.key, spec.listener.tls.key),
        std::pair(own.ca, spec.listener.tls.ca)}) {
    std::filesystem::copy_file(
        from, to, std::filesystem::copy_options::overwrite_existing);
  }
  spec.services = {&service_};
  const auto server = RpcServer::Start(spec);
  ASSERT_TRUE(server.ok()) << server.status();
  const TlsFiles stolen = Issue(service_ca_, "atoll:operator:anna");
  ChannelOptions options;
  options.tls = stolen;
  const auto channel = MakeChannel((*server)->address(), options);
  ASSERT_TRUE(channel.ok()) << channel.status();
  const auto stub = v1::RunService::NewStub(*channel);
  const auto call = [&stub] {
    return Call(*stub, &v1::RunService::Stub::GetRun, v1::GetRunRequest(),
                CallOptions{absl::Minutes(2), "", "coordinator"})
        .status();
  };
  ASSERT_TRUE(call().ok());
  const std::string serial =
      ReadSerial(ReadTlsFiles(stolen)->cert_pem).value();
  Write("dir/crl.pem",
        MakeRevocationList(service_ca_, {{serial, now_}}, now_).value());
  absl::Status status;
  // The listener looks once a second, and shuts the connection if it finds a
  // call there.
  const absl::Time deadline = absl::Now() + absl::Minutes(1);
  do {
    status = call();
  } while ((status.ok() || absl::IsUnavailable(status)) &&
           absl::Now() < deadline);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "was revoked at")) << status;
  // The same name with another certificate is welcome.
  EXPECT_TRUE(GetRun(**server, Issue(service_ca_, "atoll:operator:anna")).ok());
}

TEST_F(IslandCaTest, WillNotListenIfEveryRoleWouldBeTheIslandCas) {
  const auto server = Start("root.crt");
  EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(
      absl::StrContains(server.status().message(), "trusts the island CA too"))
      << server.status();
}

}  // namespace
}  // namespace atl::rpc
