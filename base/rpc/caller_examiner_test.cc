#include "base/rpc/caller_examiner.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "base/rpc/caller_check.h"
#include "base/rpc/certificates/tls.h"
#include "base/rpc/testing/test_certificates.h"
#include "grpc/grpc_security_constants.h"
#include "grpcpp/security/auth_context.h"
#include "gtest/gtest.h"

namespace atl::rpc {
namespace {

class None : public grpc::AuthPropertyIterator {};

// A peer without properties, whose check may wait.
class PeerDouble : public grpc::AuthContext {
 public:
  explicit PeerDouble(std::function<void()> on_check)
      : on_check_(std::move(on_check)) {}
  bool IsPeerAuthenticated() const override { return true; }
  std::vector<grpc::string_ref> GetPeerIdentity() const override { return {}; }
  std::string GetPeerIdentityPropertyName() const override { return ""; }
  std::vector<grpc::string_ref> FindPropertyValues(
      const std::string&) const override {
    on_check_();
    return {};
  }
  grpc::AuthPropertyIterator begin() const override { return None(); }
  grpc::AuthPropertyIterator end() const override { return None(); }
  void AddProperty(const std::string&, const grpc::string_ref&) override {}
  bool SetPeerIdentityPropertyName(const std::string&) override {
    return false;
  }

 private:
  const std::function<void()> on_check_;
};

int Niceness() { return getpriority(PRIO_PROCESS, gettid()); }

class CallerExaminerTest : public ::testing::Test {
 protected:
  CallerExaminerTest() : directory_(MakeTestDirectory()), authority_(directory_) {
    check_ = CallerCheck::Open(authority_.Issue("atoll:server:s-0"), "test")
                 .value();
  }

  const std::string directory_;
  TestAuthority authority_;
  std::shared_ptr<CallerCheck> check_;
};

TEST_F(CallerExaminerTest, ExaminesAtALowPriorityAndRunsAtTheUsualOne) {
  CallerExaminer examiner(*check_);
  int examined = 0, ran = 0;
  std::promise<void> done;
  ASSERT_TRUE(examiner.Examine(
      "key", std::make_shared<PeerDouble>([&] { examined = Niceness(); }),
      [&] {
        ran = Niceness();
        done.set_value();
      }));
  done.get_future().wait();
  EXPECT_EQ(examined, std::min(Niceness() + 10, 19));
  EXPECT_EQ(ran, Niceness());
}

TEST_F(CallerExaminerTest, CallsOfACertificateShareOnePlaceAndNoneIsLost) {
  int run_count = 0;
  {
    std::promise<void> release;
    std::shared_future<void> released = release.get_future().share();
    CallerExaminer examiner(*check_);
    const auto peer =
        std::make_shared<PeerDouble>([released] { released.wait(); });
    const auto then = [&] { ++run_count; };  // On one thread.
    int accepted = 0;
    while (examiner.Examine(std::to_string(accepted), peer, then)) ++accepted;
    EXPECT_EQ(accepted, 128);
    EXPECT_TRUE(examiner.Examine("0", peer, then));
    EXPECT_TRUE(examiner.Examine("127", peer, then));
    EXPECT_FALSE(examiner.Examine("128", peer, then));
    release.set_value();
  }
  EXPECT_EQ(run_count, 130);
}

}  // namespace
}  // namespace atl::rpc
