#include "base/rpc/watch.h"

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "atoll/v1/server_service.grpc.pb.h"
#include "base/rpc/channel.h"
#include "base/rpc/listener.h"
#include "base/status/refusal.h"
#include "gtest/gtest.h"

namespace atl::rpc {
namespace {

constexpr absl::Duration kLong = absl::Minutes(2);

// Streams the test's scripts, one for each stream.
class PlanServiceDouble : public v1::ServerService::Service {
 public:
  struct Script {
    int64_t first = 0;  // Revisions [first, last].
    int64_t last = -1;
    bool hold = false;  // Then waits until the caller is gone.
    absl::Status status;
  };

  void Add(Script script) {
    std::lock_guard<std::mutex> lock(mutex_);
    scripts_.push_back(std::move(script));
    changed_.notify_all();
  }

  void AwaitStreamCount(int count) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return stream_count_ >= count; });
  }

  int stream_count() {
    std::lock_guard<std::mutex> lock(mutex_);
    return stream_count_;
  }

  grpc::Status WatchServerPlan(
      grpc::ServerContext* context, const v1::WatchServerPlanRequest*,
      grpc::ServerWriter<v1::WatchServerPlanResponse>* writer) override {
    Script script;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      ++stream_count_;
      changed_.notify_all();
      while (scripts_.empty() && !context->IsCancelled()) {
        changed_.wait_for(lock, std::chrono::milliseconds(10));
      }
      if (scripts_.empty()) return grpc::Status::CANCELLED;
      script = scripts_.front();
      scripts_.pop_front();
    }
    for (int64_t revision = script.first; revision <= script.last; ++revision) {
      v1::WatchServerPlanResponse response;
      response.mutable_plan()->set_revision(revision);
      writer->Write(response);
    }
    std::unique_lock<std::mutex> lock(mutex_);
    while (script.hold && !context->IsCancelled()) {
      changed_.wait_for(lock, std::chrono::milliseconds(10));
    }
    return ToGrpc(script.status);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Script> scripts_;
  int stream_count_ = 0;
};

class WatchTest : public ::testing::Test {
 protected:
  using PlanWatch = Watch<v1::WatchServerPlanResponse>;

  WatchTest() {
    RpcServer::Spec spec;
    spec.services = {&service_};
    server_ = *RpcServer::Start(spec);
    stub_ = v1::ServerService::NewStub(*MakeChannel(server_->address(), {}));
    options_.retry.initial_delay = absl::Milliseconds(1);
    options_.retry.max_delay = absl::Milliseconds(5);
  }

  static bool IsOlder(const v1::WatchServerPlanResponse& came,
                      const v1::WatchServerPlanResponse& held) {
    return came.plan().revision() < held.plan().revision();
  }

  std::unique_ptr<PlanWatch> Open(PlanWatch::IsOlder is_older = nullptr) {
    return std::make_unique<PlanWatch>(
        options_,
        [this](grpc::ClientContext* context)
            -> std::unique_ptr<
                grpc::ClientReaderInterface<v1::WatchServerPlanResponse>> {
          return stub_->WatchServerPlan(context, {});
        },
        std::move(is_older));
  }

  static PlanWatch::IsNews After(int64_t revision) {
    return [revision](const v1::WatchServerPlanResponse& message) {
      return message.plan().revision() > revision;
    };
  }

  // Waits for `revision` or a later one; 0 if the watch ends first.
  static int64_t Await(PlanWatch& watch, int64_t revision) {
    const auto message = watch.Next(After(revision - 1), absl::Now() + kLong);
    return message.ok() ? message->plan().revision() : 0;
  }

  WatchOptions options_;
  PlanServiceDouble service_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<v1::ServerService::Stub> stub_;
};

TEST_F(WatchTest, HandsOverTheNewestAndDropsWhatItReplaces) {
  service_.Add({1, 500, true, {}});
  const auto watch = Open();
  int taken_count = 0;
  int64_t revision = 0;
  while (revision < 500) {
    const auto message = watch->Next(After(revision), absl::Now() + kLong);
    ASSERT_TRUE(message.ok()) << message.status();
    EXPECT_GT(message->plan().revision(), revision);
    revision = message->plan().revision();
    ++taken_count;
  }
  EXPECT_LE(taken_count, 500);
  EXPECT_EQ(watch->Next(After(500), absl::Now()).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_F(WatchTest, AnOlderMessageReplacesNone) {
  service_.Add({7, 7, false, absl::UnavailableError("stopping")});
  service_.Add({3, 3, false, absl::UnavailableError("of yesterday")});
  const auto watch = Open(&IsOlder);
  // When the third stream is requested, the second one has been read to its
  // end.
  service_.AwaitStreamCount(3);
  const auto message = watch->Next(After(0), absl::Now() + kLong);
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(message->plan().revision(), 7);
}

TEST_F(WatchTest, OpensTheStreamAgainWhenItBreaks) {
  service_.Add({1, 1, false, absl::UnavailableError("stopping")});
  service_.Add({2, 2, false, absl::InternalError("broken off")});
  service_.Add(
      {3, 3, false,
       RefuseForNow(absl::StatusCode::kResourceExhausted, "TOO_MANY_STREAMS",
                    "full", absl::Milliseconds(1))});
  service_.Add({4, 4, true, {}});
  const auto watch = Open();
  EXPECT_EQ(Await(*watch, 4), 4);
  EXPECT_EQ(service_.stream_count(), 4);
}

TEST_F(WatchTest, ComesBackWhenThePeerIsRestarted) {
  service_.Add({1, 1, true, {}});
  const auto watch = Open();
  EXPECT_EQ(Await(*watch, 1), 1);
  const std::string address = server_->address();
  server_.reset();
  service_.Add({2, 2, true, {}});
  RpcServer::Spec spec;
  spec.listener.address = address;
  spec.services = {&service_};
  server_ = *RpcServer::Start(spec);
  EXPECT_EQ(Await(*watch, 2), 2);
}

TEST_F(WatchTest, EndsWhenThePeerRefuses) {
  service_.Add({1, 0, false,
                WithReason(absl::AbortedError("an older life"),
                           {"STALE_INCARNATION", {}})});
  const auto watch = Open();
  const auto message = watch->Next(After(0), absl::Now() + kLong);
  EXPECT_EQ(message.status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(GetReason(message.status())->reason, "STALE_INCARNATION");
  EXPECT_EQ(watch->Next(After(7), absl::Now() + kLong).status().code(),
            absl::StatusCode::kAborted);
}

TEST_F(WatchTest, HandsOverTheLastMessageBeforeItSaysThatTheStreamHasEnded) {
  service_.Add({7, 7, false, absl::OkStatus()});
  const auto watch = Open();
  EXPECT_EQ(Await(*watch, 7), 7);
  EXPECT_EQ(watch->Next(After(7), absl::Now() + kLong).status().code(),
            absl::StatusCode::kOutOfRange);
}

TEST_F(WatchTest, WaitsNoLongerThanItsCallerWants) {
  const auto watch = Open();
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(watch->Next(After(0), absl::Now() + kLong, stop.get_token())
                .status()
                .code(),
            absl::StatusCode::kCancelled);
  EXPECT_EQ(watch->Next(After(0), absl::Now()).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_F(WatchTest, CanBeEndedInTheMiddleOfAStream) {
  service_.Add({1, 1, true, {}});
  auto watch = Open();
  EXPECT_EQ(Await(*watch, 1), 1);
  watch.reset();
}

}  // namespace
}  // namespace atl::rpc
