// The cluster object says all that a log must begin with, and no secret.

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/features/features.h"
#include "coordinator/core/coordinator.h"
#include "coordinator/core/testing/run_simulation.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using storage::v1::ClusterObject;

constexpr char kSecret[] = "the secret of the log";

class CoordinatorMirrorTest : public testing::Test {
 protected:
  void Start() { core_.Start(now_, {"cluster", "start", kSecret}, 0); }

  void Register(const std::string& server_id) {
    v1::RegisterServerRequest request;
    request.set_server_id(server_id);
    request.set_address("h:1");
    request.set_incarnation(1);
    request.set_directory_id(absl::StrCat("directory of ", server_id));
    request.set_features(ProgramFeatures());
    const auto registered = core_.RegisterServer(request, now_);
    ASSERT_TRUE(registered.ok()) << registered.status();
  }

  void Create(const std::string& run_id, const std::string& run_uid) {
    v1::CreateRunRequest request;
    request.set_run_id(run_id);
    *request.mutable_spec() = SimpleSpec();
    const auto created = core_.CreateRun(request, now_, run_uid);
    ASSERT_TRUE(created.ok()) << created.status();
  }

  // Makes everything durable; whether the cluster object may have changed.
  bool IsDue() { return core_.TakeEffects(now_).mirror_due; }

  // The object without its place.
  ClusterObject Content() {
    ClusterObject object = core_.DescribeForMirror();
    object.clear_log_index();
    return object;
  }

  const absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  Coordinator core_{{}};
};

TEST_F(CoordinatorMirrorTest, DescribesTheCluster) {
  Start();
  Register("s1");
  Register("s0");
  Create("one", "u1");
  core_.Advance(now_);
  const ClusterObject object = core_.DescribeForMirror();
  EXPECT_EQ(object.format(), 1);
  EXPECT_EQ(object.cluster_id(), "cluster");
  EXPECT_EQ(object.coordinator_epoch(), 1);
  ASSERT_THAT(object.starts(), SizeIs(1));
  EXPECT_EQ(object.starts(0).start_id(), "start");
  EXPECT_EQ(object.starts(0).log_index(), 1);
  ASSERT_THAT(object.servers(), SizeIs(2));
  EXPECT_EQ(object.servers(1).directory_id(), "directory of s1");
  ASSERT_THAT(object.runs(), SizeIs(1));
  EXPECT_EQ(object.runs(0).run_id(), "one");
  EXPECT_EQ(object.runs(0).run_uid(), "u1");
  EXPECT_EQ(object.runs(0).run_epoch(), 1);
  EXPECT_EQ(object.runs(0).restore_commit_seq(), 0);
  EXPECT_THAT(object.runs(0).placed().server_ids(), ElementsAre("s0", "s1"));
  EXPECT_EQ(object.runs(0).placed().placement_epoch(),
            (*core_.FindRun("one"))->state().placement_epoch());
}

TEST_F(CoordinatorMirrorTest, ARunWithoutServersIsNotPlaced) {
  Start();
  Create("one", "u1");
  core_.Advance(now_);
  EXPECT_FALSE(core_.DescribeForMirror().runs(0).has_placed());
}

TEST_F(CoordinatorMirrorTest, HasNoSecret) {
  Start();
  IsDue();
  EXPECT_THAT(core_.DescribeForMirror().SerializeAsString(),
              Not(HasSubstr(kSecret)));
}

TEST_F(CoordinatorMirrorTest, HasWhatTheLogsSnapshotHas) {
  LogSnapshot log;
  log.snapshot.set_format(1);
  log.snapshot.set_revision(9);
  storage::v1::CoordinatorSnapshot& own = *log.snapshot.mutable_coordinator();
  own.set_coordinator_epoch(4);
  storage::v1::CoordinatorStarted& start = *own.add_starts();
  start.set_coordinator_epoch(4);
  start.set_cluster_id("cluster");
  start.set_start_id("before");
  start.set_log_index(3);
  start.set_log_secret(kSecret);
  own.add_servers()->set_server_id("s0");
  storage::v1::RunDeleted& deleted = *own.add_deleted();
  deleted.set_run_id("old");
  deleted.set_run_uid("u0");
  deleted.add_server_ids("s0");
  own.add_tokens()->mutable_token()->set_token_id("t");
  own.mutable_tokens(0)->set_secret_sha256("hash");
  storage::v1::IdentitySet& identity = *own.add_identities();
  identity.mutable_grant()->mutable_identity()->set_run_uid("u1");
  identity.mutable_grant()->mutable_identity()->set_name("a");
  identity.set_key_sha256("key");
  identity.set_revoked(true);
  ASSERT_TRUE(core_.Restore(log).ok());
  core_.Start(now_, {"", "start", ""}, 7);
  const ClusterObject object = core_.DescribeForMirror();
  EXPECT_EQ(object.coordinator_epoch(), 5);
  ASSERT_THAT(object.starts(), SizeIs(2));
  EXPECT_EQ(object.starts(0).log_index(), 3);
  EXPECT_EQ(object.starts(1).log_index(), 8);
  EXPECT_TRUE(MessageDifferencer::Equals(object.servers(0), own.servers(0)));
  EXPECT_TRUE(MessageDifferencer::Equals(object.deleted(0), own.deleted(0)));
  EXPECT_TRUE(MessageDifferencer::Equals(object.tokens(0), own.tokens(0)));
  EXPECT_TRUE(
      MessageDifferencer::Equals(object.identities(0), own.identities(0)));
  EXPECT_THAT(object.SerializeAsString(), Not(HasSubstr(kSecret)));
}

TEST_F(CoordinatorMirrorTest, NamesTheBatchThatMakesItDurable) {
  Start();
  EXPECT_EQ(core_.DescribeForMirror().log_index(), 1);
  IsDue();
  EXPECT_EQ(core_.DescribeForMirror().log_index(), 1);
  Create("one", "u1");  // In the run's log alone.
  EXPECT_EQ(core_.DescribeForMirror().log_index(), 2);
  IsDue();
  EXPECT_EQ(core_.DescribeForMirror().log_index(), 2);
}

// A missed change would stay out of the mirror; a needless one costs a look.
TEST_F(CoordinatorMirrorTest, EachChangeIsTold) {
  ClusterObject before = Content();
  const auto check = [&](const std::string& what, bool changes) {
    const ClusterObject after = Content();
    EXPECT_EQ(!MessageDifferencer::Equals(before, after), changes) << what;
    EXPECT_EQ(IsDue(), changes) << what;
    before = after;
  };
  Start();
  check("a start", true);
  Register("s0");
  check("a server", true);
  Register("s0");
  check("the same server", false);
  core_.Audit({"operator:a", ""}, {}, now_);
  check("a request", false);
  Create("one", "u1");
  check("a run", true);
  Register("s1");
  core_.Advance(now_);
  check("the run's servers", true);
  ASSERT_TRUE((*core_.FindRun("one"))->Step(event::Cancel{}, now_).ok());
  check("the run's end", true);
  ASSERT_TRUE(core_.DeleteRun("one", "", now_).ok());
  check("the run's deletion", true);
}

}  // namespace
}  // namespace atl::coordinator
