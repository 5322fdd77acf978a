#include "base/rpc/bulk_call.h"

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/rpc/grpc_library.h"
#include "base/sync/mutex.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"

namespace atl::rpc {
namespace {

constexpr absl::string_view kEcho = "/test/Echo";
// Answers nothing until it is cancelled.
constexpr absl::string_view kSilent = "/test/Silent";

grpc::ByteBuffer Bytes(absl::string_view text) {
  const grpc::Slice slice(std::string{text});
  return grpc::ByteBuffer(&slice, 1);
}

std::string Text(const grpc::ByteBuffer& bytes) {
  grpc::Slice slice;
  if (!bytes.DumpToSingleSlice(&slice).ok()) return "?";
  return std::string(reinterpret_cast<const char*>(slice.begin()),
                     slice.size());
}

class Answerer : public grpc::ServerGenericBidiReactor {
 public:
  explicit Answerer(bool echo) : echo_(echo) { StartRead(&message_); }

  void OnReadDone(bool ok) override {
    if (!echo_) return;
    if (!ok) {
      Finish(grpc::Status(grpc::StatusCode::ABORTED, "all of it"));
      return;
    }
    answer_ = Bytes(absl::StrCat("re: ", Text(message_)));
    StartWrite(&answer_);
  }

  void OnWriteDone(bool ok) override {
    if (ok) StartRead(&message_);
  }

  void OnCancel() override {
    if (!echo_) Finish(grpc::Status::CANCELLED);
  }

  void OnDone() override { delete this; }

 private:
  const bool echo_;
  grpc::ByteBuffer message_;
  grpc::ByteBuffer answer_;
};

class EchoService : public grpc::CallbackGenericService {
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    return new Answerer(context->method() == kEcho);
  }
};

// Sends its messages one after the other, each after the answer to the one
// before.
class TalkingCall : public BulkCall {
 public:
  TalkingCall(const std::shared_ptr<grpc::Channel>& channel,
              absl::string_view method, std::deque<std::string> messages)
      : BulkCall(channel, std::string(method)), messages_(std::move(messages)) {
    message_ = Bytes(messages_.front());
    messages_.pop_front();
  }

  using BulkCall::RemoveHold;

  void Start(bool hold = false) {
    if (hold) AddHold();
    Begin(&message_, /*last=*/false, &answer_);
  }
  void Cancel() { context().TryCancel(); }

  grpc::Status Await() {
    MutexLock lock(&mutex_);
    while (!status_.has_value()) changed_.Wait(&mutex_);
    return *status_;
  }
  bool done() {
    MutexLock lock(&mutex_);
    return status_.has_value();
  }
  void AwaitReadEnd() {
    MutexLock lock(&mutex_);
    while (!read_ended_) changed_.Wait(&mutex_);
  }
  int done_count() const { return done_count_; }
  const std::vector<std::string>& answers() const { return answers_; }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) {
      MutexLock lock(&mutex_);
      read_ended_ = true;
      changed_.SignalAll();
      return;
    }
    answers_.push_back(Text(answer_));
    StartRead(&answer_);
    Next();
  }

  void OnWriteDone(bool ok) override {
    if (ok) Next();
  }

  // Called after a write and after its answer, whichever comes first.
  void Next() {
    MutexLock lock(&mutex_);
    half_ = !half_;
    if (half_) return;
    if (messages_.empty()) {
      StartWritesDone();
      return;
    }
    message_ = Bytes(messages_.front());
    messages_.pop_front();
    StartWrite(&message_);
  }

  void OnDone(const grpc::Status& status) override {
    MutexLock lock(&mutex_);
    ++done_count_;
    status_ = status;
    changed_.SignalAll();
  }

  grpc::ByteBuffer message_;
  grpc::ByteBuffer answer_;
  std::deque<std::string> messages_;
  std::vector<std::string> answers_;
  int done_count_ = 0;
  Mutex mutex_;
  CondVar changed_;
  bool half_ = false;
  bool read_ended_ = false;
  std::optional<grpc::Status> status_;
};

class BulkCallTest : public testing::Test {
 protected:
  BulkCallTest() {
    KeepGrpcRunning();
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterCallbackGenericService(&service_);
    server_ = builder.BuildAndStart();
    channel_ = grpc::CreateChannel(absl::StrCat("127.0.0.1:", port),
                                   grpc::InsecureChannelCredentials());
  }
  ~BulkCallTest() override { server_->Shutdown(); }

  EchoService service_;
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(BulkCallTest, TalksInOrderAndEndsWithTheServersStatus) {
  TalkingCall call(channel_, kEcho, {"a", "b", "c"});
  call.Start();
  const grpc::Status status = call.Await();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(status.error_message(), "all of it");
  EXPECT_EQ(call.answers(),
            (std::vector<std::string>{"re: a", "re: b", "re: c"}));
  EXPECT_EQ(call.done_count(), 1);
}

TEST_F(BulkCallTest, ACancelEndsACallThatNobodyAnswers) {
  TalkingCall call(channel_, kSilent, {"a"});
  call.Start();
  call.Cancel();
  EXPECT_EQ(call.Await().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(call.answers().empty());
}

TEST_F(BulkCallTest, ACancelBeforeTheStartCounts) {
  TalkingCall call(channel_, kSilent, {"a"});
  call.Cancel();
  call.Start();
  EXPECT_EQ(call.Await().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(BulkCallTest, AServerThatIsAwayEndsIt) {
  server_->Shutdown();
  TalkingCall call(channel_, kEcho, {"a"});
  call.Start();
  EXPECT_EQ(call.Await().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(call.done_count(), 1);
}

TEST_F(BulkCallTest, TheEndWaitsForAHold) {
  TalkingCall call(channel_, kEcho, {"a"});
  call.Start(/*hold=*/true);
  call.AwaitReadEnd();
  // A call of its own takes the thread past what has come of the first.
  TalkingCall other(channel_, kEcho, {"b"});
  other.Start();
  other.Await();
  EXPECT_FALSE(call.done());
  call.RemoveHold();
  EXPECT_EQ(call.Await().error_code(), grpc::StatusCode::ABORTED);
}

TEST_F(BulkCallTest, ManyAtOnce) {
  std::vector<std::unique_ptr<TalkingCall>> calls;
  for (int i = 0; i < 100; ++i) {
    std::deque<std::string> messages;
    for (int k = 0; k < 20; ++k) messages.push_back(absl::StrCat(i, "/", k));
    calls.push_back(
        std::make_unique<TalkingCall>(channel_, kEcho, std::move(messages)));
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&calls, t] {
      for (size_t i = t; i < calls.size(); i += 4) calls[i]->Start();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(calls[i]->Await().error_code(), grpc::StatusCode::ABORTED);
    ASSERT_EQ(calls[i]->answers().size(), 20u);
    EXPECT_EQ(calls[i]->answers().back(), absl::StrCat("re: ", i, "/19"));
  }
}

}  // namespace
}  // namespace atl::rpc
