#include "base/rpc/call.h"

#include <atomic>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

namespace atl::rpc {
namespace {

TEST(CallTest, NamesThePeerThatIsAway) {
  EXPECT_EQ(NamePeer(absl::UnavailableError("refused"), "server s0").message(),
            "server s0: refused");
  EXPECT_EQ(NamePeer(absl::NotFoundError("no run"), "server s0").message(),
            "no run");
}

TEST(CallTest, SaysThatAPortWithoutTheServiceIsNotTheOneMeant) {
  const absl::Status status =
      NamePeer(absl::UnimplementedError(""), "coordinator 127.0.0.1:7401");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(),
            "coordinator 127.0.0.1:7401 does not know this method: it is "
            "another program, or an older one");
  // An error with a message stays as it is.
  EXPECT_EQ(NamePeer(absl::UnimplementedError("gzip"), "x").message(), "gzip");
}

TEST(CallTest, SaysOnceThatAnAnswerIsLateAndNothingOfOneThatIsNot) {
  absl::Notification said;
  {
    const SlowWatch late([&] { said.Notify(); }, absl::ZeroDuration());
    said.WaitForNotification();
  }
  std::atomic<int> count{0};
  { const SlowWatch in_time([&] { ++count; }, absl::Hours(1)); }
  EXPECT_EQ(count, 0);
  { const SlowWatch nobody_listens(nullptr, absl::ZeroDuration()); }
}

}  // namespace
}  // namespace atl::rpc
