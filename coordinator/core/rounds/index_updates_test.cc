#include "coordinator/core/rounds/index_updates.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "coordinator/core/rounds/contributions.h"
#include "coordinator/core/testing/run_simulation_fixture.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

// The simulation holds the index and all decisions against a whole look at the
// reports after each step (IndexOracle).
class IndexUpdatesTest : public RunSimulationTest {
 protected:
  const Observations& observed() const { return run_->machine().observed(); }
  int DueCount() const {
    return static_cast<int>(
        std::count_if(observed().decisions.begin(), observed().decisions.end(),
                      [](const FragmentDecision& one) { return one.is_due; }));
  }
};

// Sets `field` to a value that is not its default.
void Set(google::protobuf::Message& message,
         const google::protobuf::FieldDescriptor* field) {
  using Field = google::protobuf::FieldDescriptor;
  const auto* const reflection = message.GetReflection();
  switch (field->cpp_type()) {
    case Field::CPPTYPE_INT32:
      return reflection->SetInt32(&message, field, 7);
    case Field::CPPTYPE_INT64:
      return reflection->SetInt64(&message, field, 7);
    case Field::CPPTYPE_UINT64:
      return reflection->SetUInt64(&message, field, 7);
    case Field::CPPTYPE_DOUBLE:
      return reflection->SetDouble(&message, field, 7);
    case Field::CPPTYPE_ENUM:
      return reflection->SetEnumValue(&message, field, 1);
    case Field::CPPTYPE_MESSAGE: {
      google::protobuf::Message& part =
          *reflection->MutableMessage(&message, field);
      return Set(part, part.GetDescriptor()->field(0));
    }
    default:
      FAIL() << "a kind of field that the test does not know: "
             << field->full_name();
  }
}

TEST_F(IndexUpdatesTest, HeadersThatDifferInAnyFieldAreNotTheSame) {
  const v1::ContributionInfo plain;
  EXPECT_TRUE(IsSameInfo(plain, v1::ContributionInfo()));
  const auto* const fields = v1::ContributionInfo::descriptor();
  for (int i = 0; i < fields->field_count(); ++i) {
    v1::ContributionInfo other;
    Set(other, fields->field(i));
    EXPECT_FALSE(IsSameInfo(plain, other)) << fields->field(i)->name();
    EXPECT_TRUE(IsSameInfo(other, v1::ContributionInfo(other)));
  }
  for (const auto* part :
       {v1::ContributionKey::descriptor(), v1::Digest::descriptor()}) {
    for (int i = 0; i < part->field_count(); ++i) {
      v1::ContributionInfo a, b;
      Set(part == v1::Digest::descriptor()
              ? static_cast<google::protobuf::Message&>(*a.mutable_digest())
              : *a.mutable_key(),
          part->field(i));
      b.mutable_key();
      b.mutable_digest();
      EXPECT_FALSE(IsSameInfo(a, b)) << part->field(i)->name();
    }
  }
}

TEST_F(IndexUpdatesTest, AHeaderWithAFieldOfANewerProgramIsAnotherOne) {
  v1::ContributionInfo plain, newer;
  newer.GetReflection()->MutableUnknownFields(&newer)->AddVarint(1000, 1);
  EXPECT_FALSE(IsSameInfo(plain, newer));
  EXPECT_TRUE(IsSameInfo(newer, v1::ContributionInfo(newer)));
}

TEST_F(IndexUpdatesTest, AHeartbeatLeavesNothingToDecide) {
  v1::RunSpec spec = SimpleSpec(3);
  Start(spec);
  run_->checks_index = false;
  run_->Push("i0", 1, 0);
  EXPECT_EQ(DueCount(), 0);
  ASSERT_TRUE(run_->Heartbeat("i1").ok());
  run_->machine().Step(event::Tick{}, run_->now()).IgnoreError();
  EXPECT_EQ(DueCount(), 0);
}

TEST_F(IndexUpdatesTest, AReportWithoutNewsLeavesTheSeenOnesWhereTheyAre) {
  Start(SimpleSpec(2));
  run_->PushAll("i0");
  const v1::ContributionInfo* const before =
      observed().index.Seen(0).begin()->second.info.get();
  run_->FollowPlans();
  EXPECT_EQ(observed().index.Seen(0).begin()->second.info.get(), before);
  // Both shards have sent an equal header.
  const KnownContribution& known =
      observed().index.fragments[0].known.begin()->second;
  ASSERT_EQ(known.parts.size(), 2u);
  EXPECT_EQ(known.parts[0].info, known.parts[1].info);
}

TEST_F(IndexUpdatesTest, AnOutcomeLeavesNothingInTheIndex) {
  Start(SimpleSpec(2));
  run_->PushAll("i0");
  run_->PushAll("i1");
  run_->FollowPlans();
  run_->FollowPlans();
  EXPECT_EQ(run_->fragment(0).newest.version(), 1);
  for (const FragmentContributions& fragment : observed().index.fragments) {
    EXPECT_TRUE(fragment.known.empty());
    EXPECT_TRUE(fragment.seen.empty());
  }
}

// A report of changes of shard 0 that names `info` as stored.
v1::ShardReport Changes(int64_t base_report_seq,
                        const v1::ContributionInfo& info) {
  v1::ShardReport report;
  report.set_run_id("run");
  report.set_run_epoch(1);
  report.set_initialized(true);
  report.set_base_report_seq(base_report_seq);
  *report.add_stored()->mutable_info() = info;
  return report;
}

TEST_F(IndexUpdatesTest, AReportOfChangesIsTakenOnlyUponTheReportThatItChanges) {
  Start(SimpleSpec(1));
  run_->Push("i0", 0, 0);
  const int64_t newest = observed().shards[0].report_seq;
  ASSERT_EQ(observed().shards[0].contribution_count, 1);
  v1::ContributionInfo info = *observed().index.Seen(0).begin()->second.info;
  info.mutable_key()->set_slot(1);
  const auto step = [&](v1::ShardReport report, int64_t report_seq) {
    const auto answer = run_->machine().Step(
        event::ShardReported{"server-0", report, report_seq}, run_->now());
    return answer.ok() && answer->wants_whole_report;
  };
  EXPECT_TRUE(step(Changes(newest - 1, info), newest + 1));
  EXPECT_TRUE(step(Changes(newest + 1, info), newest + 2));
  v1::ShardReport other_epoch = Changes(newest, info);
  other_epoch.set_run_epoch(2);
  EXPECT_TRUE(step(other_epoch, newest + 1));
  EXPECT_EQ(observed().shards[0].contribution_count, 1);
  EXPECT_EQ(observed().index.Seen(0).size(), 1u);
  // It cannot change itself.
  EXPECT_TRUE(step(Changes(newest, info), newest));
  EXPECT_EQ(observed().index.Seen(0).size(), 1u);
  EXPECT_FALSE(step(Changes(newest, info), newest + 1));
  EXPECT_EQ(observed().shards[0].contribution_count, 2);
  // A repeat of what was taken needs no whole report.
  EXPECT_FALSE(step(Changes(newest, info), newest + 1));
  EXPECT_EQ(observed().shards[0].contribution_count, 2);
  EXPECT_EQ(observed().index.Seen(0).size(), 2u);
  // A key that is gone twice, or was never here, is gone.
  v1::ShardReport gone = Changes(newest + 1, info);
  gone.clear_stored();
  *gone.add_gone() = info.key();
  *gone.add_gone() = info.key();
  gone.add_gone()->set_fragment(99);
  EXPECT_FALSE(step(gone, newest + 2));
  EXPECT_EQ(observed().shards[0].contribution_count, 1);
  // The server was away, or has registered: the next report must be whole.
  run_->machine()
      .Step(event::ServerChanged{"server-0", /*restarted=*/false}, run_->now())
      .IgnoreError();
  EXPECT_TRUE(step(Changes(newest + 2, info), newest + 3));
}

TEST_F(IndexUpdatesTest, ReportsOfChangesEndBeforeTheyTakeTooMuchMemory) {
  Start(SimpleSpec(1));
  v1::ContributionInfo info;
  info.mutable_key()->set_run_epoch(1);
  int64_t seq = observed().shards[0].report_seq;
  bool wants_whole = false;
  size_t bytes = 0;
  int64_t named_count = 0;
  while (!wants_whole && bytes < 64 << 20) {
    v1::ShardReport report = Changes(seq, info);
    for (int i = 0; i < 20000; ++i) {
      v1::RefusedContribution& refused = *report.add_refused();
      refused.mutable_key()->set_run_epoch(1);
      refused.mutable_key()->set_slot(7);
      refused.mutable_key()->set_fragment(9);
      refused.mutable_key()->set_seq(++named_count);
      refused.set_reason(std::string(200, 'x'));
    }
    bytes += report.ByteSizeLong();
    const auto answer = run_->machine().Step(
        event::ShardReported{"server-0", report, seq + 1}, run_->now());
    wants_whole = answer.ok() && answer->wants_whole_report;
    if (!wants_whole) ++seq;
  }
  EXPECT_TRUE(wants_whole);
  // Nothing stays of them after a whole one.
  v1::ShardReport whole = Changes(0, info);
  whole.clear_stored();
  run_->machine()
      .Step(event::ShardReported{"server-0", whole, seq + 2}, run_->now())
      .IgnoreError();
  EXPECT_EQ(observed().shards[0].contribution_count, 0);
  EXPECT_TRUE(observed().shards[0].ended.empty());
}

// A server's reports are in order and name a key once. The index does not rely
// on it.
TEST_F(IndexUpdatesTest, ReportsInAnyOrderAndWithKeysTwiceGiveTheSame) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937_64 random(seed);
  const auto pick = [&](uint64_t count) {
    return static_cast<int>(random() % count);
  };
  for (int trial = 0; trial < 20; ++trial) {
    v1::RunSpec spec = ElasticSpec(1 + pick(3));
    spec.set_server_count(2 + pick(2));
    Start(spec, 4);
    run_->sends_whole = [&] { return pick(3) == 0; };
    run_->alter_report = [&](v1::ShardReport& report) {
      auto& stored = *report.mutable_stored();
      for (int i = 0; i < stored.size(); ++i) {
        stored.SwapElements(i, pick(stored.size()));
      }
      if (pick(4) == 0 && stored.size() > 0) {
        const v1::StoredContribution again = stored[pick(stored.size())];
        *report.add_stored() = again;
        if (pick(2) == 0) {
          report.mutable_stored(report.stored_size() - 1)
              ->mutable_info()
              ->set_token_count(1);
        }
      }
      if (pick(4) == 0 && report.refused_size() > 0) {
        const v1::RefusedContribution again = report.refused(0);
        *report.add_refused() = again;
        report.mutable_refused(report.refused_size() - 1)->set_reason("again");
      }
    };
    for (int step = 0; step < 60; ++step) {
      const std::string id = absl::StrCat("i", pick(4));
      const int32_t shard = pick(run_->shard_count());
      const int32_t f = pick(run_->state().fragments().size());
      switch (pick(7)) {
        case 0:
          run_->RefusePush(id, f, shard);
          break;
        case 1:
          run_->Lose(id, f, shard);
          break;
        case 2:
          run_->FollowPlan(shard);
          break;
        case 3:
          run_->RestartServer(shard);
          break;
        default:
          run_->Push(id, f, shard);
      }
      if (testing::Test::HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace atl::coordinator
