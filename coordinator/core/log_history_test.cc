#include "coordinator/core/log_history.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

// A coordinator's log, as a test writes it.
class Log {
 public:
  // It has `index` batches.
  explicit Log(int64_t index = 0, const std::string& secret = "secret")
      : secret_(secret) {
    history_.set_index(index);
  }

  void Start(const std::string& start_id) {
    storage::v1::CoordinatorStarted start;
    start.set_cluster_id("cluster");
    start.set_start_id(start_id);
    start.set_log_secret(secret_);
    start.set_log_index(history_.index() + 1);
    history_.AddStart(start);
    Write(1);
  }
  // The log takes the place of a lost one. Empty: its secret stays.
  void Supersede(const std::string& start_id, int64_t log_index,
                 const std::string& new_secret = "") {
    storage::v1::CoordinatorStarted start;
    if (!new_secret.empty()) secret_ = new_secret;
    start.set_cluster_id("cluster");
    start.set_start_id(start_id);
    start.set_log_secret(secret_);
    start.set_log_index(log_index);
    start.set_supersedes(true);
    start.set_has_new_secret(!new_secret.empty());
    history_.AddStart(start);
    history_.set_index(log_index);
  }
  void Write(int64_t batch_count) {
    history_.set_index(history_.index() + batch_count);
  }
  // The code of the fault that `seen` proves; empty without one.
  std::string Check(const v1::LogPosition& seen) const {
    const std::optional<v1::Fault> fault = history_.Check(seen);
    return fault.has_value() ? fault->code() : "";
  }

  const LogHistory& history() const { return history_; }
  v1::LogPosition position() const { return history_.position(); }

 private:
  std::string secret_;
  LogHistory history_;
};

TEST(LogHistoryTest, AcceptsEveryPositionThatItGave) {
  Log log;
  std::vector<v1::LogPosition> given;
  for (int start = 0; start < 5; ++start) {
    log.Start(absl::StrCat("start", start));
    given.push_back(log.position());
    for (int i = 0; i < 3; ++i) {
      log.Write(1);
      given.push_back(log.position());
    }
  }
  for (const v1::LogPosition& seen : given) {
    EXPECT_EQ(log.Check(seen), "") << seen.ShortDebugString();
  }
  EXPECT_EQ(log.position().index(), 20);
  EXPECT_EQ(log.position().start_id(), "start4");
}

TEST(LogHistoryTest, AcceptsAPeerThatHasSeenNothing) {
  Log log;
  EXPECT_EQ(log.Check({}), "");
  log.Start("a");
  EXPECT_EQ(log.Check({}), "");
}

TEST(LogHistoryTest, HasNoPositionBeforeTheFirstStartWithIds) {
  Log log(7);
  EXPECT_EQ(log.position().cluster_id(), "");
  storage::v1::CoordinatorStarted old;
  old.set_coordinator_epoch(3);
  LogHistory history;
  history.AddStart(old);
  EXPECT_TRUE(history.starts().empty());
  log.Start("a");
  EXPECT_EQ(log.position().index(), 8);
}

TEST(LogHistoryTest, NamesAnotherCluster) {
  Log log;
  log.Start("a");
  v1::LogPosition seen = log.position();
  seen.set_cluster_id("other");
  const std::optional<v1::Fault> fault = log.history().Check(seen);
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->code(), "OTHER_CLUSTER");
  EXPECT_TRUE(absl::StrContains(fault->expected(), "cluster"));
  EXPECT_TRUE(absl::StrContains(fault->found(), "other"));
}

// A log that was made again, on an emptied volume, may have the old id.
TEST(LogHistoryTest, TellsAnotherLogWithItsIdByTheSecret) {
  Log log;
  Log again(0, "another secret");
  for (Log* const one : {&log, &again}) {
    one->Start("a");
    one->Write(9);
  }
  EXPECT_EQ(again.Check(log.position()), "OTHER_CLUSTER");
  EXPECT_EQ(log.Check(again.position()), "OTHER_CLUSTER");
}

// The quoted text appears in answers and in the runs' faults.
TEST(LogHistoryTest, QuotesOnlyAPartOfALongClusterId) {
  Log log;
  log.Start("a");
  v1::LogPosition seen = log.position();
  seen.set_cluster_id(std::string(1 << 20, 'x'));
  const std::optional<v1::Fault> fault = log.history().Check(seen);
  ASSERT_TRUE(fault.has_value());
  EXPECT_LT(fault->found().size(), 100u);
}

TEST(LogHistoryTest, FindsThatItIsAnOlderCopy) {
  Log log;
  log.Start("a");
  log.Write(9);
  Log copy = log;
  log.Write(1);
  copy.Start("b");
  const std::optional<v1::Fault> fault = copy.history().Check(log.position());
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->code(), "LOG_BEHIND");
  EXPECT_TRUE(absl::StrContains(fault->expected(), "batch 11"))
      << fault->expected();
  EXPECT_TRUE(absl::StrContains(fault->found(), "batch 10")) << fault->found();
}

TEST(LogHistoryTest, FindsThatItsOwnStartIsCutShort) {
  Log log;
  log.Start("a");
  Log copy = log;
  log.Write(4);
  EXPECT_EQ(copy.Check(log.position()), "LOG_BEHIND");
  copy.Write(4);
  EXPECT_EQ(copy.Check(log.position()), "");
}

TEST(LogHistoryTest, FindsThatACopyWentItsOwnWay) {
  Log log;
  log.Start("a");
  log.Write(5);
  Log copy = log;
  log.Start("b");
  log.Write(10);
  copy.Start("c");
  copy.Write(10);
  ASSERT_EQ(copy.history().index(), log.history().index());
  EXPECT_EQ(copy.Check(log.position()), "LOG_BEHIND");
  copy.Write(1000);
  EXPECT_EQ(copy.Check(log.position()), "LOG_BEHIND");
  copy.Start("d");
  EXPECT_EQ(copy.Check(log.position()), "LOG_BEHIND");
  EXPECT_EQ(log.Check(copy.position()), "LOG_BEHIND");
}

TEST(LogHistoryTest, AcceptsAStartThatIsNoLongerKept) {
  Log log;
  log.Start("first");
  log.Write(2);
  const v1::LogPosition seen = log.position();
  for (size_t i = 0; i < LogHistory::kStartsMax; ++i) {
    log.Start(absl::StrCat("start", i));
  }
  ASSERT_EQ(log.history().starts().size(), LogHistory::kStartsMax);
  EXPECT_EQ(log.history().starts().front().start_id(), "start0");
  EXPECT_EQ(log.Check(seen), "");
  // An unknown start within the range of those kept is still a fault.
  Log copy = log;
  log.Start("unknown");
  EXPECT_EQ(copy.Check(log.position()), "LOG_BEHIND");
}

TEST(LogHistoryTest, ALogThatSupersedesKnowsThatTheLostOneWentFurther) {
  Log lost;
  lost.Start("a");
  lost.Write(5);
  Log log = lost;
  lost.Write(5);
  const v1::LogPosition of_known_start = lost.position();
  lost.Start("b");
  const v1::LogPosition of_unknown_start = lost.position();
  EXPECT_EQ(log.Check(of_known_start), "LOG_BEHIND");
  EXPECT_EQ(log.Check(of_unknown_start), "LOG_BEHIND");

  log.Supersede("c", 1000);
  EXPECT_EQ(log.Check(of_known_start), "");
  EXPECT_EQ(log.Check(of_unknown_start), "");
  // The lost log, if it comes back, is the one that is behind.
  EXPECT_EQ(lost.Check(log.position()), "LOG_BEHIND");
  // From the start on, nothing has changed.
  Log copy = log;
  log.Start("d");
  EXPECT_EQ(copy.Check(log.position()), "LOG_BEHIND");
  EXPECT_EQ(log.Check(copy.position()), "");
  // Another log under the same id is still told by its secret.
  Log other(0, "another secret");
  other.Start("e");
  EXPECT_EQ(log.Check(other.position()), "OTHER_CLUSTER");
}

TEST(LogHistoryTest, ANewSecretProvesNothingOfTheLostLog) {
  Log lost;
  lost.Start("a");
  lost.Write(5);
  Log log(0, "unused");
  log.Supersede("b", 1000, "new secret");
  EXPECT_EQ(log.Check(lost.position()), "");
  EXPECT_EQ(lost.Check(log.position()), "OTHER_CLUSTER");
  v1::LogPosition claimed = log.position();
  claimed.set_index(claimed.index() + 1);
  EXPECT_EQ(log.Check(claimed), "OTHER_CLUSTER");
  // A second loss: the proofs of the first log are still not checked.
  log.Supersede("c", 2000);
  EXPECT_EQ(log.Check(lost.position()), "");
}

TEST(LogHistoryTest, KeepsTheStartThatSupersedes) {
  Log lost;
  lost.Start("a");
  const v1::LogPosition seen = lost.position();
  Log log(0, "unused");
  log.Supersede("b", 1000, "new secret");
  log.Supersede("c", 2000);
  log.Start("oldest");
  const v1::LogPosition of_oldest = log.position();
  for (size_t i = 0; i < LogHistory::kStartsMax; ++i) {
    log.Start(absl::StrCat("start", i));
  }
  const auto& starts = log.history().starts();
  ASSERT_EQ(starts.size(), LogHistory::kStartsMax);
  EXPECT_EQ(starts[0].start_id(), "b");
  EXPECT_EQ(starts[1].start_id(), "c");
  EXPECT_EQ(starts[2].start_id(), "start2");
  // As a snapshot restores it.
  LogHistory again;
  for (const auto& start : starts) again.AddStart(start);
  again.set_index(log.history().index());
  for (const LogHistory& history : {log.history(), again}) {
    EXPECT_FALSE(history.Check(seen).has_value());
    EXPECT_FALSE(history.Check(of_oldest).has_value());
  }
}

TEST(LogHistoryTest, APeerCannotClaimWhatItWasNotSent) {
  Log log;
  log.Start("a");
  for (const auto& change : std::vector<std::function<void(v1::LogPosition&)>>{
           [](v1::LogPosition& p) { p.set_index(p.index() + 1); },
           [](v1::LogPosition& p) { p.set_start_id("b"); },
           [](v1::LogPosition& p) { p.clear_proof(); }}) {
    v1::LogPosition seen = log.position();
    ASSERT_EQ(log.Check(seen), "");
    change(seen);
    EXPECT_EQ(log.Check(seen), "OTHER_CLUSTER") << seen.ShortDebugString();
  }
}

}  // namespace
}  // namespace atl::coordinator
