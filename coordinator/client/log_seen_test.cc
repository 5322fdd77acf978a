#include "coordinator/client/log_seen.h"

#include <cstdint>
#include <string>

#include "atoll/v1/island_service.pb.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

v1::LogPosition At(const std::string& cluster, const std::string& start,
                   int64_t index) {
  v1::LogPosition position;
  position.set_cluster_id(cluster);
  position.set_start_id(start);
  position.set_index(index);
  return position;
}

TEST(LogSeenTest, KeepsTheLatestPlaceOfOneLog) {
  LogSeen seen;
  seen.Note(At("c", "first", 5));
  seen.Note(At("c", "first", 3));
  EXPECT_EQ(seen.newest().index(), 5);
  seen.Note(At("c", "second", 9));
  EXPECT_EQ(seen.newest().start_id(), "second");
  // An older copy of the log that runs again: what was seen stays the proof.
  seen.Note(At("c", "third", 8));
  EXPECT_EQ(seen.newest().start_id(), "second");
  EXPECT_EQ(seen.newest().index(), 9);
}

TEST(LogSeenTest, AnotherLogReplacesNothing) {
  LogSeen seen;
  seen.Note(At("c", "first", 5));
  seen.Note(At("d", "other", 50));
  EXPECT_EQ(seen.newest().cluster_id(), "c");
}

TEST(LogSeenTest, ARequestHasNoPlaceBeforeTheFirst) {
  LogSeen seen;
  v1::JoinRequest request;
  seen.Note(v1::LogPosition());
  seen.AddTo(request);
  EXPECT_FALSE(request.has_log_seen());
  seen.Note(At("c", "first", 0));
  seen.AddTo(request);
  EXPECT_EQ(request.log_seen().start_id(), "first");
}

}  // namespace
}  // namespace atl::coordinator
