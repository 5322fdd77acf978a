// Tokens, grants, revocation and the audit log of a coordinator.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/codec/sha256.h"
#include "base/identity/identity.h"
#include "base/status/refusal.h"
#include "base/time/proto_time.h"
#include "coordinator/core/coordinator.h"
#include "coordinator/core/outputs/audit_rows.h"
#include "coordinator/core/testing/run_simulation.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kTokenId[] = "abcdefghijkl";
const Actor kOperator = {"operator:anna", "ca7"};
const Actor kGate = {"gate:g0", "9a7e"};

std::string Reason(const absl::Status& status) {
  const std::optional<ErrorReason> reason = GetReason(status);
  return reason.has_value() ? reason->reason : "";
}

std::string Hash(const std::string& secret) {
  const codec::Sha256Digest digest = codec::ComputeSha256(secret);
  return std::string(digest.begin(), digest.end());
}

class CoordinatorEnrolmentTest : public ::testing::Test {
 protected:
  CoordinatorEnrolmentTest() {
    Restart();
    CreateRun("spring", "uid-spring");
    CreateRun("autumn", "uid-autumn");
    Announce();
  }

  void CreateRun(const std::string& run_id, const std::string& uid,
                 v1::RunSpec spec = SimpleSpec()) {
    v1::CreateRunRequest request;
    request.set_run_id(run_id);
    *request.mutable_spec() = std::move(spec);
    if (!request.spec().outer().has_enrolled_norm_factor()) {
      request.mutable_spec()->mutable_outer()->set_enrolled_norm_factor(8);
    }
    ASSERT_TRUE(core_->CreateRun(request, now_, uid).ok());
    Sync();
  }

  void Announce() {
    v1::AnnounceGateRequest gate;
    gate.set_address("gate.example.org:7402");
    gate.set_pin(std::string(43, 'p'));
    ASSERT_TRUE(core_->AnnounceGate(gate, CallOf(kGate)).ok());
  }

  // The records that a crash loses are those since the last Sync.
  Effects Sync() {
    Effects effects = core_->TakeEffects(now_);
    for (const LogEntry& entry : effects.batch.entries) {
      entries_.push_back(entry);
    }
    for (const HistoryRow& row : effects.batch.history) {
      if (row.table == HistoryTable::kAudit ||
          row.table == HistoryTable::kEnrolments) {
        audit_.push_back(row);
      }
    }
    for (const LogSnapshot& snapshot : effects.batch.snapshots) {
      snapshots_[snapshot.run_id] = snapshot;
    }
    return effects;
  }

  // Of the newest record of the coordinator's own log.
  int64_t OwnRevision() const {
    int64_t revision = 0;
    for (const LogEntry& entry : entries_) {
      if (entry.run_id.empty()) revision = entry.record.revision();
    }
    return revision;
  }

  void Restart() {
    CoordinatorOptions options;
    options.snapshots.log_records_max = records_max_;
    core_ = std::make_unique<Coordinator>(options);
    std::map<std::string, int64_t> revisions;
    for (const auto& [run_id, snapshot] : snapshots_) {
      ASSERT_TRUE(core_->Restore(snapshot).ok());
      revisions[run_id] = snapshot.snapshot.revision();
    }
    for (const LogEntry& entry : entries_) {
      if (entry.record.revision() <= revisions[entry.run_id]) continue;
      ASSERT_TRUE(core_->Replay(entry).ok());
    }
    core_->Start(now_, {"cluster", absl::StrCat("start", ++starts_)},
                 static_cast<int64_t>(entries_.size()));
    Sync();
  }

  absl::StatusOr<v1::CreateTokenResponse> CreateToken(
      int64_t uses = 1, const std::string& pattern = "", double share = 0) {
    return CreateToken(AskForToken("spring", uses, pattern, share));
  }
  absl::StatusOr<v1::CreateTokenResponse> CreateToken(
      const v1::CreateTokenRequest& request) {
    auto made = core_->CreateToken(request, CallOf(kOperator));
    Sync();
    return made;
  }
  v1::CreateTokenRequest AskForToken(const std::string& run_id,
                                     int64_t uses = 1,
                                     const std::string& pattern = "",
                                     double share = 0) const {
    v1::CreateTokenRequest request;
    v1::Token& token = *request.mutable_token();
    token.set_token_id(kTokenId);
    token.set_role(v1::ENROLLED_ROLE_ISLAND);
    token.set_run_id(run_id);
    token.set_use_count_max(uses);
    token.set_name_pattern(pattern);
    token.set_weight_share_max(share);
    *token.mutable_expire_time() = ToProto(now_ + absl::Hours(24));
    request.set_secret_sha256(Hash("secret"));
    return request;
  }
  // Why a token with a share is refused in a run with `spec`; "": it is made.
  std::string WhyShareRefused(const v1::RunSpec& spec) {
    const std::string run_id = absl::StrCat("run", ++runs_);
    CreateRun(run_id, absl::StrCat("uid-", run_id), spec);
    v1::CreateTokenRequest request = AskForToken(run_id, 1, "", 0.2);
    request.mutable_token()->set_token_id(
        absl::StrFormat("tokenofrun%02d", runs_));
    return Reason(CreateToken(request).status());
  }

  static v1::ConsumeTokenRequest Request(char key = 'k',
                                         const std::string& name = "") {
    v1::ConsumeTokenRequest request;
    request.set_token_id(kTokenId);
    request.set_token_secret("secret");
    request.set_run_id("spring");
    request.set_role(v1::ENROLLED_ROLE_ISLAND);
    request.set_name(name);
    request.set_key_sha256(std::string(32, key));
    *request.mutable_lifetime() = ToProto(absl::Hours(24));
    return request;
  }

  EnrolmentCall CallOf(const Actor& actor) const {
    return {
        actor,
        {absl::StrFormat("%032x", random_), absl::StrFormat("%06x", random_)},
        now_,
        now_};
  }

  absl::StatusOr<v1::CertificateGrant> Consume(
      const v1::ConsumeTokenRequest& request) {
    ++random_;
    auto response = core_->ConsumeToken(request, CallOf(kGate));
    if (!response.ok()) return response.status();
    return response->grant();
  }

  absl::StatusOr<v1::CertificateGrant> Renew(
      const v1::CertificateGrant& grant, char key = 'k') {
    v1::RenewCertificateRequest request;
    *request.mutable_identity() = grant.identity();
    request.set_key_sha256(std::string(32, key));
    *request.mutable_lifetime() = ToProto(absl::Hours(24));
    ++random_;
    auto response = core_->RenewCertificate(request, CallOf(kGate));
    if (!response.ok()) return response.status();
    return response->grant();
  }

  std::vector<std::string> Actions() {
    Sync();
    std::vector<std::string> actions;
    for (const HistoryRow& row : audit_) {
      v1::AuditRecord record;
      EXPECT_TRUE(record.ParseFromString(row.value));
      EXPECT_EQ(record.number(), row.number);
      actions.push_back(absl::StrCat(record.actor(), " ", record.action(), " ",
                                     record.subject()));
    }
    return actions;
  }

  // The owner of `grant`, by default one of an operator's own islands, joins.
  absl::Status Join(const std::string& run_id,
                    const std::optional<v1::CertificateGrant>& grant = {},
                    const std::string& own_name = "own") {
    v1::JoinRequest join;
    join.set_run_id(run_id);
    join.set_island_id(grant.has_value() ? grant->identity().name() : own_name);
    join.mutable_capabilities()->add_devices()->set_kind("cpu");
    join.mutable_capabilities()->set_data_fingerprint(
        SimpleSpec().data().fingerprint());
    RunMachine& run = **core_->FindRun(run_id);
    const RunScope scope =
        grant.has_value() ? Scope(*grant) : RunScope{.any = true};
    absl::StatusOr<event::Join> made =
        core_->MakeJoin(join, std::string(32, 's'), scope, run);
    if (!made.ok()) return made.status();
    return run.Step(*made, now_).status();
  }

  // Of the certificate of `grant` with the key `key`.
  RunScope Scope(const v1::CertificateGrant& grant, char key = 'k') const {
    RunScope scope;
    scope.cluster_id = grant.identity().cluster_id();
    scope.run_uid = grant.identity().run_uid();
    scope.key_sha256 = std::string(32, key);
    return scope;
  }
  std::string WhyOut(const RunScope& scope, const std::string& name,
                     const std::string& run_id = "spring",
                     Role role = Role::kIsland) {
    return Reason(
        core_->CheckScope(scope, role, name, **core_->FindRun(run_id)));
  }

  int64_t records_max_ = 1000;
  absl::Time now_ = absl::FromUnixSeconds(1'800'000'000);
  std::unique_ptr<Coordinator> core_;
  std::vector<LogEntry> entries_;
  std::map<std::string, LogSnapshot> snapshots_;
  std::vector<HistoryRow> audit_;
  int starts_ = 0;
  int random_ = 0;
  int runs_ = 0;
};

TEST_F(CoordinatorEnrolmentTest, GrantsOneCertificateAUseAndKey) {
  const auto made = CreateToken();
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->gate_address(), "gate.example.org:7402");
  const auto first = Consume(Request());
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->identity().cluster_id(), "cluster");
  EXPECT_EQ(first->identity().run_uid(), "uid-spring");
  EXPECT_EQ(first->identity().name(), "e-island-000001");
  EXPECT_EQ(first->serial().size(), 16);
  EXPECT_EQ(FromProto(first->begin_time()), now_ - absl::Minutes(5));
  EXPECT_EQ(FromProto(first->end_time()), now_ + absl::Hours(24));
  // The answer was lost: the same key asks again, later.
  now_ += absl::Seconds(7);
  EXPECT_EQ(Consume(Request())->SerializeAsString(),
            first->SerializeAsString());
  EXPECT_EQ(Reason(Consume(Request('x')).status()), "TOKEN_USED");
  EXPECT_THAT(Actions(),
              ElementsAre("operator:anna token.create abcdefghijkl",
                          "gate:g0 island.enrol e-island-000001"));
}

TEST_F(CoordinatorEnrolmentTest, AHolderOfATokenSeesTheRun) {
  ASSERT_TRUE(CreateToken().ok());
  v1::CheckTokenRequest request;
  request.set_token_id(kTokenId);
  request.set_token_secret("secret");
  request.set_run_id("spring");
  const auto checked = core_->CheckToken(request, CallOf(kGate));
  ASSERT_TRUE(checked.ok()) << checked.status();
  const v1::RunSpec& spec = checked->run().spec();
  EXPECT_EQ(spec.schedule().SerializeAsString(),
            SimpleSpec().schedule().SerializeAsString());
  int64_t elements = 0;
  for (const v1::TensorSpec& tensor : spec.layout().tensors()) {
    EXPECT_EQ(tensor.name(), "");
    elements += tensor.shape(0);
  }
  EXPECT_EQ(spec.layout().tensors_size(), spec.layout().fragment_count());
  EXPECT_EQ(elements,
            RunLayout::Create(SimpleSpec().layout())->element_count());
  EXPECT_EQ(checked->run().state(), v1::RUN_STATE_STARTING);
  EXPECT_EQ(checked->token().use_count(), 0);
  request.set_token_secret("wrong");
  EXPECT_EQ(Reason(core_->CheckToken(request, CallOf(kGate)).status()),
            "WRONG_TOKEN");
}

TEST_F(CoordinatorEnrolmentTest, AnOperatorSeesServersAndGates) {
  v1::RegisterServerRequest server;
  server.set_server_id("s0");
  server.set_address("s0:7401");
  server.set_incarnation(1);
  server.set_program_version("0.1.0");
  ASSERT_TRUE(core_->RegisterServer(server, now_).ok());
  v1::GetClusterResponse cluster = core_->DescribeCluster(now_);
  ASSERT_EQ(cluster.servers_size(), 1);
  EXPECT_EQ(cluster.servers(0).program_version(), "0.1.0");
  EXPECT_TRUE(cluster.servers(0).alive());
  EXPECT_FALSE(cluster.servers(0).has_health());
  ASSERT_EQ(cluster.gates_size(), 1);
  EXPECT_EQ(cluster.gates(0).address(), "gate.example.org:7402");

  v1::ReportShardsRequest report;
  report.set_server_id("s0");
  report.mutable_health()->set_disk_free_bytes(7);
  const absl::Time clock = now_ + absl::Hours(1);
  *report.mutable_health()->mutable_time() = ToProto(clock - absl::Minutes(2));
  core_->NoteHealth(report.server_id(), report.health(), clock);
  cluster = core_->DescribeCluster(now_ + absl::Seconds(30));
  EXPECT_EQ(cluster.servers(0).health().disk_free_bytes(), 7);
  EXPECT_EQ(FromProto(cluster.servers(0).clock_ahead_duration()),
            -absl::Minutes(2));
  EXPECT_EQ(cluster.gates_size(), 0);  // It was silent for 30 s.
  report.set_server_id("unknown");
  core_->NoteHealth(report.server_id(), report.health(), clock);
  EXPECT_EQ(core_->DescribeCluster(now_).servers_size(), 1);
}

TEST_F(CoordinatorEnrolmentTest, RefusesAServerOrAGateWithoutAnAddress) {
  v1::RegisterServerRequest server;
  server.set_server_id("s0");
  server.set_incarnation(1);
  v1::AnnounceGateRequest gate;
  gate.set_pin(std::string(43, 'p'));
  for (const std::string& address :
       {std::string("s0"), std::string(":1"), std::string("s0:99999"),
        std::string("s0\n:1"), std::string(300, 'a') + ":1"}) {
    server.set_address(address);
    EXPECT_EQ(core_->RegisterServer(server, now_).status().code(),
              absl::StatusCode::kInvalidArgument)
        << address;
    gate.set_address(address);
    EXPECT_EQ(core_->AnnounceGate(gate, CallOf(kGate)).status().code(),
              absl::StatusCode::kInvalidArgument)
        << address;
  }
}

TEST_F(CoordinatorEnrolmentTest, LosesAUseAndItsGrantTogether) {
  ASSERT_TRUE(CreateToken().ok());
  ASSERT_TRUE(Consume(Request()).ok());
  Restart();  // Before the batch was synced.
  const auto again = Consume(Request('x'));
  ASSERT_TRUE(again.ok()) << again.status();
  Sync();
  Restart();
  EXPECT_EQ(Consume(Request('x'))->SerializeAsString(),
            again->SerializeAsString());
  EXPECT_EQ(Reason(Consume(Request()).status()), "TOKEN_USED");
}

TEST_F(CoordinatorEnrolmentTest, TheLogAndASnapshotHaveNoSecret) {
  const auto has = [](const auto& message, const std::string& text) {
    return absl::StrContains(message.SerializeAsString(), text);
  };
  records_max_ = 4;
  Restart();
  Announce();
  const std::string secret = "of a person, 32 bytes";
  v1::CreateTokenRequest token = AskForToken("spring", 1, "");
  token.set_secret_sha256(Hash(secret));
  ASSERT_TRUE(CreateToken(token).ok());
  v1::ConsumeTokenRequest request = Request();
  request.set_token_secret(secret);
  ASSERT_TRUE(Consume(request).ok());
  Sync();
  int hash_count = 0;
  for (const LogEntry& entry : entries_) {
    EXPECT_FALSE(has(entry.record, secret));
    hash_count += has(entry.record, Hash(secret));
  }
  for (const auto& [run_id, kept] : snapshots_) {
    EXPECT_FALSE(has(kept.snapshot, secret));
    hash_count += has(kept.snapshot, Hash(secret));
  }
  EXPECT_GT(hash_count, 0);
}

TEST_F(CoordinatorEnrolmentTest, KeepsEverythingInASnapshot) {
  records_max_ = 1;
  Restart();
  Announce();
  ASSERT_TRUE(CreateToken(/*uses=*/2).ok());
  const auto first = Consume(Request());
  v1::RevokeIslandRequest revoke;
  revoke.set_run_id("spring");
  revoke.set_island_id(first->identity().name());
  ASSERT_TRUE(core_->RevokeIsland(revoke, CallOf(kOperator)).ok());
  for (int i = 0; i < 3; ++i) {
    core_->Audit(kOperator, {}, now_);
    Sync();
  }
  ASSERT_TRUE(snapshots_.contains(""));
  entries_.clear();
  Restart();
  EXPECT_EQ(core_->enrolments().ListTokens("spring")[0].use_count(), 1);
  EXPECT_TRUE(core_->enrolments().IsRevoked("uid-spring",
                                            first->identity().name()));
  EXPECT_EQ(Reason(Renew(*first).status()), "REVOKED");
}

TEST_F(CoordinatorEnrolmentTest, RefusesWhatATokenDoesNotAdmit) {
  ASSERT_TRUE(CreateToken(/*uses=*/9, "lab-*").ok());
  v1::ConsumeTokenRequest request = Request();
  request.set_token_secret("Secret");
  EXPECT_EQ(Reason(Consume(request).status()), "WRONG_TOKEN");
  request = Request();
  request.set_token_id("abcdefghijkx");
  EXPECT_EQ(Reason(Consume(request).status()), "WRONG_TOKEN");
  request = Request();
  request.set_run_id("autumn");
  EXPECT_EQ(Reason(Consume(request).status()), "TOKEN_OTHER_RUN");
  request = Request();
  request.set_role(v1::ENROLLED_ROLE_READER);
  EXPECT_EQ(Reason(Consume(request).status()), "TOKEN_OTHER_ROLE");
  EXPECT_EQ(Reason(Consume(Request('k', "attic")).status()), "TOKEN_OTHER_NAME");
  EXPECT_EQ(Reason(Consume(Request('k', "Lab")).status()), "INVALID_FIELDS");
  request = Request();
  request.set_key_sha256("short");
  EXPECT_EQ(Reason(Consume(request).status()), "INVALID_FIELDS");
  request = Request();
  request.mutable_lifetime()->set_seconds(7 * 86400);
  EXPECT_EQ(Reason(Consume(request).status()), "INVALID_FIELDS");
  EXPECT_EQ(Consume(Request('k', "lab-1"))->identity().name(), "e-lab-1");
  EXPECT_EQ(Reason(Consume(Request('x', "lab-1")).status()), "NAME_TAKEN");
  EXPECT_EQ(Reason(Consume(Request('k', "lab-2")).status()), "TOKEN_OTHER_NAME");
  EXPECT_EQ(core_->enrolments().ListTokens("")[0].use_count(), 1);
  now_ += absl::Hours(24);
  EXPECT_EQ(Reason(Consume(Request('y')).status()), "TOKEN_EXPIRED");
}

TEST_F(CoordinatorEnrolmentTest, RefusesARevokedTokenAndKeepsItsIslands) {
  ASSERT_TRUE(CreateToken(/*uses=*/2).ok());
  const auto grant = Consume(Request());
  v1::RevokeTokenRequest revoke;
  revoke.set_token_id(kTokenId);
  ASSERT_TRUE(core_->RevokeToken(revoke, CallOf(kOperator)).ok());
  EXPECT_EQ(Reason(Consume(Request('x')).status()), "TOKEN_REVOKED");
  EXPECT_TRUE(Renew(*grant).ok());
  revoke.set_token_id("abcdefghijkx");
  EXPECT_EQ(Reason(core_->RevokeToken(revoke, CallOf(kOperator)).status()),
            "NO_SUCH_TOKEN");
}

TEST_F(CoordinatorEnrolmentTest, RevokesATokenWithItsIslandsInOneRecord) {
  ASSERT_TRUE(CreateToken(/*uses=*/3).ok());
  const auto attic = Consume(Request('a', "attic"));
  ASSERT_TRUE(Consume(Request('b', "cellar")).ok());
  const std::string name = attic->identity().name();
  ASSERT_TRUE(Join("spring", *attic).ok());
  Sync();
  v1::RevokeTokenRequest revoke;
  revoke.set_token_id(kTokenId);
  revoke.set_islands(true);
  const auto revoked = core_->RevokeToken(revoke, CallOf(kOperator));
  ASSERT_TRUE(revoked.ok()) << revoked.status();
  EXPECT_EQ(revoked->revoked_name_count(), 2);
  const Effects effects = Sync();
  EXPECT_TRUE(effects.plan_changes.at("spring").names);
  int64_t own_records = 0;
  for (const LogEntry& entry : effects.batch.entries) {
    own_records += entry.run_id.empty() ? 1 : 0;
  }
  EXPECT_EQ(own_records, 1);
  RunMachine& run = **core_->FindRun("spring");
  EXPECT_EQ(run.state().FindMember(name)->record.state(),
            v1::ISLAND_STATE_LEFT);
  EXPECT_EQ(WhyOut(Scope(*attic, 'a'), name), "REVOKED");
  EXPECT_EQ(Reason(Renew(*attic, 'a').status()), "REVOKED");
  EXPECT_EQ(Reason(Consume(Request('a', "attic")).status()), "TOKEN_REVOKED");
  EXPECT_EQ(Reason(Consume(Request('x')).status()), "TOKEN_REVOKED");
  // It stays so.
  Restart();
  Announce();
  EXPECT_EQ(Reason(Renew(*attic, 'a').status()), "REVOKED");
  // Another token's holder may have the name.
  v1::CreateTokenRequest request = AskForToken("spring");
  request.mutable_token()->set_token_id("abcdefghijk2");
  ASSERT_TRUE(CreateToken(request).ok());
  v1::ConsumeTokenRequest consume = Request('n', "attic");
  consume.set_token_id("abcdefghijk2");
  const auto again = Consume(consume);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(Renew(*again, 'n').ok());
  EXPECT_FALSE(Renew(*attic, 'a').ok());
}

TEST_F(CoordinatorEnrolmentTest, IslandsCanBeRevokedAfterTheirToken) {
  ASSERT_TRUE(CreateToken(/*uses=*/2).ok());
  const auto grant = Consume(Request());
  v1::RevokeTokenRequest revoke;
  revoke.set_token_id(kTokenId);
  ASSERT_TRUE(core_->RevokeToken(revoke, CallOf(kOperator)).ok());
  EXPECT_TRUE(Renew(*grant).ok());
  revoke.set_islands(true);
  ASSERT_TRUE(core_->RevokeToken(revoke, CallOf(kOperator)).ok());
  EXPECT_EQ(Reason(Renew(*grant).status()), "REVOKED");
  Sync();
  ASSERT_TRUE(core_->RevokeToken(revoke, CallOf(kOperator)).ok());
  EXPECT_TRUE(Sync().batch.entries.empty());
}

TEST_F(CoordinatorEnrolmentTest, AnotherClustersCertificateIsRefusedNotForgotten) {
  ASSERT_TRUE(CreateToken().ok());
  absl::StatusOr<v1::CertificateGrant> grant = Consume(Request());
  ASSERT_TRUE(grant.ok()) << grant.status();
  const std::string other(32, 'e');
  grant->mutable_identity()->set_cluster_id(other);
  EXPECT_EQ(Reason(Renew(*grant).status()), "OTHER_CLUSTER");
  EXPECT_EQ(Reason(core_->CheckCluster({.cluster_id = other, .run_uid = other})),
            "OTHER_CLUSTER");
  const v1::GetClusterResponse cluster = core_->DescribeCluster(now_);
  ASSERT_EQ(cluster.refused_peers_size(), 1);
  EXPECT_EQ(cluster.refused_peers(0).name(), grant->identity().name());
}

TEST_F(CoordinatorEnrolmentTest, RenewsUntilThirtyDaysAfterTheEnd) {
  ASSERT_TRUE(CreateToken().ok());
  const auto first = Consume(Request());
  now_ += absl::Hours(16);
  const auto second = Renew(*first);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_NE(second->serial(), first->serial());
  EXPECT_EQ(FromProto(second->end_time()), now_ + absl::Hours(24));
  EXPECT_EQ(Reason(Renew(*first, 'x').status()), "NOT_ENROLLED");
  v1::CertificateGrant other = *first;
  other.mutable_identity()->set_name("attic");
  EXPECT_EQ(Reason(Renew(other).status()), "NOT_ENROLLED");
  other = *first;
  other.mutable_identity()->set_run_uid("uid-autumn");
  EXPECT_EQ(Reason(Renew(other).status()), "NOT_ENROLLED");
  now_ += absl::Hours(24 * 31) - absl::Seconds(1);
  const auto third = Renew(*second);
  ASSERT_TRUE(third.ok()) << third.status();
  now_ += absl::Hours(24 * 31);
  EXPECT_EQ(Reason(Renew(*third).status()), "TOO_OLD");
}

TEST_F(CoordinatorEnrolmentTest, BindsACertificateToItsRun) {
  ASSERT_TRUE(CreateToken().ok());
  const auto grant = Consume(Request());
  const std::string& name = grant->identity().name();
  EXPECT_EQ(WhyOut(Scope(*grant), name), "");
  EXPECT_EQ(WhyOut(Scope(*grant), name, "autumn"), "NOT_YOUR_RUN");
  RunScope other_cluster = Scope(*grant);
  other_cluster.cluster_id = "other";
  EXPECT_EQ(WhyOut(other_cluster, name), "NOT_YOUR_RUN");
  EXPECT_EQ(WhyOut({.any = true}, "attic", "autumn"), "");
}

TEST_F(CoordinatorEnrolmentTest, AnEnrolledCertificateWithoutARecordIsRefused) {
  ASSERT_TRUE(CreateToken(/*uses=*/2).ok());
  const auto grant = Consume(Request('k', "attic"));
  // Made with the island CA's key: another key, name or role.
  EXPECT_EQ(WhyOut(Scope(*grant, 'x'), "e-attic"), "NOT_ENROLLED");
  EXPECT_EQ(WhyOut(Scope(*grant), "e-cellar"), "NOT_ENROLLED");
  EXPECT_EQ(WhyOut(Scope(*grant), "e-attic", "spring", Role::kReader),
            "NOT_ENROLLED");
  EXPECT_EQ(WhyOut(Scope(*grant), "e-attic"), "");
  EXPECT_THAT(
      core_->enrolments().ListEnrolled("uid-spring"),
      ElementsAre(EnrolledDigest(Role::kIsland, "e-attic",
                                 std::string(32, 'k'))));
  EXPECT_THAT(core_->enrolments().ListEnrolled("uid-autumn"), IsEmpty());
  // A snapshot keeps it.
  Sync();
  Restart();
  EXPECT_EQ(WhyOut(Scope(*grant), "e-attic"), "");
}

TEST_F(CoordinatorEnrolmentTest, NoStrangerHasTheNameOfAnOperatorsIsland) {
  ASSERT_TRUE(CreateToken(/*uses=*/2).ok());
  const auto grant = Consume(Request('k', "kitchen"));
  EXPECT_EQ(grant->identity().name(), "e-kitchen");
  // Asked for again, with the prefix or without.
  EXPECT_TRUE(Consume(Request('k', "e-kitchen")).ok());
  EXPECT_TRUE(Consume(Request('k', "kitchen")).ok());
  ASSERT_TRUE(Join("spring", *grant).ok());
  ASSERT_TRUE(Join("spring", std::nullopt, "kitchen").ok());
  RunMachine& run = **core_->FindRun("spring");
  EXPECT_NE(run.state().FindMember("kitchen"), nullptr);
  // Each is revoked alone.
  v1::RevokeIslandRequest revoke;
  revoke.set_run_id("spring");
  revoke.set_island_id("e-kitchen");
  ASSERT_TRUE(core_->RevokeIsland(revoke, CallOf(kOperator)).ok());
  EXPECT_EQ(WhyOut(Scope(*grant), "e-kitchen"), "REVOKED");
  EXPECT_EQ(WhyOut({.any = true}, "kitchen"), "");
  revoke.set_island_id("kitchen");
  ASSERT_TRUE(core_->RevokeIsland(revoke, CallOf(kOperator)).ok());
  EXPECT_EQ(WhyOut({.any = true}, "kitchen"), "REVOKED");
}

TEST_F(CoordinatorEnrolmentTest, ANameOfBeforeThePrefixStaysWithItsIssuer) {
  ASSERT_TRUE(CreateToken().ok());
  LogEntry old;
  storage::v1::IdentitySet& set = *old.record.mutable_identity_set();
  v1::CertificateGrant grant;
  grant.mutable_identity()->set_cluster_id("cluster");
  grant.mutable_identity()->set_run_id("spring");
  grant.mutable_identity()->set_run_uid("uid-spring");
  grant.mutable_identity()->set_role(v1::ENROLLED_ROLE_ISLAND);
  grant.mutable_identity()->set_name("kitchen");
  *grant.mutable_begin_time() = ToProto(now_ - absl::Hours(1));
  *grant.mutable_end_time() = ToProto(now_ + absl::Hours(1));
  *set.mutable_grant() = grant;
  set.set_key_sha256(std::string(32, 'k'));
  set.set_token_id(kTokenId);
  old.record.set_revision(OwnRevision() + 1);
  *old.record.mutable_time() = ToProto(now_);
  entries_.push_back(old);
  Restart();
  EXPECT_EQ(WhyOut(Scope(grant), "kitchen"), "");
  EXPECT_TRUE(Renew(grant).ok());
  EXPECT_TRUE(Consume(Request('k', "kitchen")).ok());
  v1::RevokeIslandRequest revoke;
  revoke.set_run_id("spring");
  revoke.set_island_id("kitchen");
  ASSERT_TRUE(core_->RevokeIsland(revoke, CallOf(kOperator)).ok());
  EXPECT_EQ(WhyOut(Scope(grant), "kitchen"), "REVOKED");
  EXPECT_EQ(WhyOut({.any = true}, "kitchen"), "");
}

TEST_F(CoordinatorEnrolmentTest, RevokesAnIslandForGood) {
  ASSERT_TRUE(CreateToken(/*uses=*/5).ok());
  const auto grant = Consume(Request('k', "attic"));
  v1::RevokeIslandRequest revoke;
  revoke.set_run_id("spring");
  revoke.set_island_id("e-attic");
  Sync();
  ASSERT_TRUE(core_->RevokeIsland(revoke, CallOf(kOperator)).ok());
  const Effects effects = Sync();
  EXPECT_TRUE(effects.plan_changes.at("spring").names);
  EXPECT_FALSE(effects.plan_changes.contains("autumn"));
  EXPECT_THAT(effects.changed_servers, IsEmpty());
  EXPECT_EQ(WhyOut(Scope(*grant), "e-attic"), "REVOKED");
  EXPECT_EQ(Reason(core_->CheckReadmission("e-attic",
                                           **core_->FindRun("spring"))),
            "REVOKED");
  EXPECT_EQ(Reason(Renew(*grant).status()), "REVOKED");
  EXPECT_EQ(Reason(Consume(Request('k', "attic")).status()), "REVOKED");
  EXPECT_EQ(Reason(Consume(Request('x', "attic")).status()), "REVOKED");
  EXPECT_THAT(core_->enrolments().RevokedNames("uid-spring"),
              ElementsAre("e-attic"));
  EXPECT_THAT(core_->enrolments().RevokedNames("uid-autumn"), IsEmpty());
  revoke.set_island_id("cellar");
  EXPECT_EQ(Reason(core_->RevokeIsland(revoke, CallOf(kOperator)).status()),
            "NO_SUCH_ISLAND");
}

TEST_F(CoordinatorEnrolmentTest, AReportsAnswerNamesThePlanOfARevocation) {
  for (const char* id : {"s0", "s1"}) {
    v1::RegisterServerRequest server;
    server.set_server_id(id);
    server.set_address(absl::StrCat(id, ":7401"));
    server.set_incarnation(1);
    ASSERT_TRUE(core_->RegisterServer(server, now_).ok());
  }
  core_->Advance(now_);  // Places the runs.
  ASSERT_TRUE(CreateToken().ok());
  ASSERT_TRUE(Consume(Request('k', "attic")).ok());
  EXPECT_TRUE(Sync().plan_changes.at("spring").names);
  v1::ReportShardsRequest report;
  report.set_server_id("s0");
  report.set_incarnation(1);
  const auto before = core_->ReportShards(report, now_);
  ASSERT_TRUE(before.ok()) << before.status();
  EXPECT_GT(before->plan_revision(), 0);
  EXPECT_EQ(before->plan_revision(), core_->ServerPlan("s0").revision());
  v1::RevokeIslandRequest revoke;
  revoke.set_run_id("spring");
  revoke.set_island_id("e-attic");
  ASSERT_TRUE(core_->RevokeIsland(revoke, CallOf(kOperator)).ok());
  Sync();
  const auto after = core_->ReportShards(report, now_);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_GT(after->plan_revision(), before->plan_revision());
  EXPECT_EQ(after->plan_revision(), core_->ServerPlan("s0").revision());
}

TEST_F(CoordinatorEnrolmentTest, ForgetsTokensAndNamesOfADeletedRun) {
  ASSERT_TRUE(CreateToken(/*uses=*/2).ok());
  const auto grant = Consume(Request());
  ASSERT_TRUE(
      (*core_->FindRun("spring"))->Step(event::Cancel{}, now_).ok());
  ASSERT_TRUE(core_->DeleteRun("spring", "", now_).ok());
  Sync();
  CreateRun("spring", "uid-again");
  EXPECT_EQ(Reason(Consume(Request('x')).status()), "WRONG_TOKEN");
  EXPECT_EQ(Reason(Renew(*grant).status()), "NOT_ENROLLED");
  EXPECT_EQ(WhyOut(Scope(*grant), "x"), "NOT_YOUR_RUN");
}

TEST_F(CoordinatorEnrolmentTest, MakesATokenOnceAndOnlyWithAGate) {
  ASSERT_TRUE(CreateToken().ok());
  ASSERT_TRUE(CreateToken().ok());  // Asked again.
  EXPECT_EQ(core_->enrolments().ListTokens("").size(), 1);
  EXPECT_EQ(Reason(CreateToken(1, "a*b*").status()), "INVALID_FIELDS");
  EXPECT_EQ(Reason(CreateToken(0).status()), "INVALID_FIELDS");
  EXPECT_EQ(Reason(CreateToken(1, "", 1).status()), "INVALID_FIELDS");
  now_ += absl::Seconds(31);
  EXPECT_EQ(Reason(CreateToken().status()), "NO_GATE");
}

TEST_F(CoordinatorEnrolmentTest, RefusesAShareThatHasNoEffect) {
  const auto refused = [this](auto change) {
    v1::RunSpec spec = SimpleSpec();
    spec.mutable_schedule()->set_min_quorum(1);
    change(spec);
    return WhyShareRefused(spec);
  };
  EXPECT_EQ(refused([](v1::RunSpec&) {}), "");
  for (const v1::OuterOptimizerKind kind :
       {v1::OUTER_OPTIMIZER_KIND_FEDADAM, v1::OUTER_OPTIMIZER_KIND_FEDYOGI,
        v1::OUTER_OPTIMIZER_KIND_FEDADAGRAD}) {
    EXPECT_EQ(refused([kind](v1::RunSpec& spec) {
                spec.mutable_outer()->set_optimizer(kind);
                spec.mutable_outer()->set_learning_rate(0.1);
                spec.mutable_outer()->set_beta1(0.9);
                spec.mutable_outer()->set_beta2(0.99);
                spec.mutable_outer()->set_tau(1e-3);
              }),
              "WEIGHT_SHARE_UNUSED");
  }
  for (const v1::MergeRuleKind rule :
       {v1::MERGE_RULE_KIND_TRIMMED_MEAN, v1::MERGE_RULE_KIND_MEDIAN,
        v1::MERGE_RULE_KIND_KRUM, v1::MERGE_RULE_KIND_MDA}) {
    EXPECT_EQ(refused([rule](v1::RunSpec& spec) {
                spec.mutable_outer()->mutable_merge()->set_rule(rule);
                spec.mutable_outer()->mutable_merge()->set_byzantine_count(
                    rule == v1::MERGE_RULE_KIND_MEDIAN ? 0 : 1);
                spec.mutable_outer()->set_weighting(v1::WEIGHTING_UNIFORM);
                spec.mutable_schedule()->set_min_quorum(5);
                spec.mutable_schedule()->set_island_count_min(5);
                spec.mutable_data()->set_data_shard_count(5);
              }),
              "WEIGHT_SHARE_UNUSED");
  }
  EXPECT_EQ(WhyShareRefused(AsyncSpec()), "WEIGHT_SHARE_UNUSED");
}

TEST_F(CoordinatorEnrolmentTest, RefusesAQuorumThatTheTokensCannotReach) {
  // The quorum of spring is 2. Two uses of one limited token count one.
  const auto refused = CreateToken(/*uses=*/2, "", 0.2).status();
  EXPECT_EQ(Reason(refused), "QUORUM_UNREACHABLE");
  EXPECT_THAT(refused.message(), HasSubstr("needs a quorum of 2"));
  EXPECT_THAT(refused.message(), HasSubstr("the 2 islands"));
  EXPECT_THAT(refused.message(), HasSubstr("count 1"));
  // One use each: the first is made while the others are still to come.
  v1::CreateTokenRequest request = AskForToken("spring", 1, "", 0.2);
  EXPECT_EQ(Reason(CreateToken(request).status()), "");
  request.mutable_token()->set_token_id("abcdefghijk2");
  EXPECT_EQ(Reason(CreateToken(request).status()), "");
}

TEST_F(CoordinatorEnrolmentTest, OwnIslandsAndOtherTokensReachAQuorum) {
  v1::CreateTokenRequest request = AskForToken("spring", /*uses=*/2);
  EXPECT_TRUE(CreateToken(request).ok());
  request = AskForToken("spring", /*uses=*/30, "", 0.2);
  request.mutable_token()->set_token_id("abcdefghijk2");
  EXPECT_EQ(Reason(CreateToken(request).status()), "");
  // They end.
  v1::RevokeTokenRequest revoke;
  for (const char* id : {kTokenId, "abcdefghijk2"}) {
    revoke.set_token_id(id);
    ASSERT_TRUE(core_->RevokeToken(revoke, CallOf(kOperator)).ok());
  }
  request.mutable_token()->set_token_id("abcdefghijk3");
  EXPECT_EQ(Reason(CreateToken(request).status()), "QUORUM_UNREACHABLE");
  // An island with an operator's certificate is there.
  ASSERT_TRUE(Join("spring").ok());
  EXPECT_EQ(Reason(CreateToken(request).status()), "");
}

TEST_F(CoordinatorEnrolmentTest, AsksForABoundOrForConsent) {
  v1::RunSpec spec = SimpleSpec();
  spec.mutable_outer()->set_enrolled_norm_factor(0);
  CreateRun("summer", "uid-summer", spec);
  v1::CreateTokenRequest request = AskForToken("summer");
  const auto refused = CreateToken(request).status();
  EXPECT_EQ(Reason(refused), "NO_NORM_BOUND");
  EXPECT_THAT(refused.message(), HasSubstr("--accept-unbounded"));
  request.mutable_token()->set_role(v1::ENROLLED_ROLE_READER);
  EXPECT_TRUE(CreateToken(request).ok());
  request = AskForToken("summer");
  request.mutable_token()->set_token_id("abcdefghijk2");
  request.set_accept_unbounded(true);
  EXPECT_TRUE(CreateToken(request).ok());
}

TEST_F(CoordinatorEnrolmentTest, NoEnrolledIslandJoinsAtDurabilityIsland) {
  v1::RunSpec spec = SimpleSpec();
  spec.set_durability(v1::DURABILITY_ISLAND);
  spec.mutable_outer()->set_enrolled_norm_factor(0);
  CreateRun("winter", "uid-winter", spec);
  v1::CreateTokenRequest request = AskForToken("winter");
  request.set_accept_unbounded(true);
  EXPECT_EQ(Reason(CreateToken(request).status()), "ISLAND_DURABILITY");
  v1::JoinRequest join;
  join.set_run_id("winter");
  join.set_island_id("attic");
  RunScope enrolled;
  enrolled.run_uid = "uid-winter";
  const RunMachine& run = **core_->FindRun("winter");
  EXPECT_EQ(Reason(core_->MakeJoin(join, "s", enrolled, run).status()),
            "ISLAND_DURABILITY");
  EXPECT_TRUE(core_->MakeJoin(join, "s", {.any = true}, run).ok());
}

TEST_F(CoordinatorEnrolmentTest, TrimsTheAuditLog) {
  HistoryTrim newest;
  for (int i = 0; i < 103'000; ++i) {
    core_->Audit(kOperator, {}, now_);
    if (i % 100 != 0) continue;
    for (const HistoryTrim& trim : core_->TakeEffects(now_).batch.trims) {
      if (trim.table == HistoryTable::kAudit) newest = trim;
    }
  }
  // The second of the rows that are counted off; records of before count too.
  EXPECT_GE(newest.end, 2 * kAuditTrimStep);
  EXPECT_LE(newest.end, 2 * kAuditTrimStep + 2);
}

TEST(FitsPatternTest, TakesOneStarForAnyCharacters) {
  EXPECT_TRUE(FitsPattern("", "attic"));
  EXPECT_TRUE(FitsPattern("attic", "attic"));
  EXPECT_FALSE(FitsPattern("attic", "attic-2"));
  EXPECT_TRUE(FitsPattern("lab-*", "lab-"));
  EXPECT_TRUE(FitsPattern("a*c", "attic"));
  EXPECT_FALSE(FitsPattern("ab*ba", "aba"));
}

}  // namespace
}  // namespace atl::coordinator
