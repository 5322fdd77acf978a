#include "base/rpc/call_guard.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "atoll/v1/parameter_service.grpc.pb.h"
#include "atoll/v1/run_service.grpc.pb.h"
#include "base/io/unique_fd.h"
#include "base/net/bounded_listener.h"
#include "base/net/socket.h"
#include "base/rpc/call.h"
#include "base/rpc/certificates/authority.h"
#include "base/rpc/certificates/revocation_list.h"
#include "base/rpc/certificates/tls.h"
#include "base/rpc/channel.h"
#include "base/rpc/listener.h"
#include "base/rpc/refused_callers.h"
#include "base/rpc/status.h"
#include "base/rpc/testing/health.h"
#include "base/rpc/testing/raw_calls.h"
#include "base/rpc/testing/test_certificates.h"
#include "base/status/refusal.h"
#include "base/sync/mutex.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/client_callback.h"
#include "gtest/gtest.h"

namespace atl::rpc {
namespace {

constexpr absl::Duration kPatience = absl::Minutes(2);

// Sends nothing.
class Empty : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  Empty() { Finish(grpc::Status::OK); }
  void OnDone() override { delete this; }
};

class ParameterServiceDouble
    : public v1::ParameterService::WithRawCallbackMethod_PushOuterGradient<
          v1::ParameterService::WithRawCallbackMethod_PullParameters<
              v1::ParameterService::WithCallbackMethod_ImportParameters<
                  v1::ParameterService::WithCallbackMethod_PullKept<
                      v1::ParameterService::Service>>>> {
 public:
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>*
  PushOuterGradient(grpc::CallbackServerContext*) override {
    ++call_count;
    niceness = getpriority(PRIO_PROCESS, gettid());
    return new Drain;
  }
  grpc::ServerWriteReactor<grpc::ByteBuffer>* PullParameters(
      grpc::CallbackServerContext*, const grpc::ByteBuffer*) override {
    ++call_count;
    return new Empty;
  }

  std::atomic<int> call_count{0};
  std::atomic<int> niceness{0};  // Of the thread that began the newest push.
};

class RunServiceDouble : public v1::RunService::CallbackService {
 public:
  grpc::ServerUnaryReactor* GetRun(grpc::CallbackServerContext* context,
                                   const v1::GetRunRequest* request,
                                   v1::GetRunResponse* response) override {
    ++call_count;
    response->mutable_run()->set_run_id(request->run_id());
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(ToGrpc(is_full ? RefuseForNow(
                                         absl::StatusCode::kResourceExhausted,
                                         "QUEUE_FULL", "full", absl::Seconds(1))
                                   : absl::OkStatus()));
    return reactor;
  }

  std::atomic<int> call_count{0};
  std::atomic<bool> is_full{false};
};

// A call of any kind that begins without its request.
class LateRequest
    : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  LateRequest(grpc::GenericStub& stub, const std::string& method) {
    stub.PrepareBidiStreamingCall(&context_, method, {}, this);
    AddHold();  // For Send.
    StartRead(&response_);
    StartCall();
  }

  // The one request.
  void Send(const std::string& bytes) {
    const grpc::Slice slice(bytes);
    request_ = grpc::ByteBuffer(&slice, 1);
    StartWriteLast(&request_, {});
  }
  void Cancel() { context_.TryCancel(); }

  grpc::StatusCode Await() {
    if (!is_released_) RemoveHold();
    is_released_ = true;
    MutexLock lock(&mutex_);
    while (!is_done_) done_.Wait(&mutex_);
    return code_;
  }

  void OnDone(const grpc::Status& status) override {
    MutexLock lock(&mutex_);
    code_ = status.error_code();
    is_done_ = true;
    done_.SignalAll();
  }

 private:
  grpc::ClientContext context_;
  grpc::ByteBuffer request_, response_;
  bool is_released_ = false;
  Mutex mutex_;
  CondVar done_;
  bool is_done_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::StatusCode code_ ABSL_GUARDED_BY(mutex_) = grpc::StatusCode::UNKNOWN;
};

using PushStream = grpc::ClientReaderWriter<v1::PushOuterGradientRequest,
                                            v1::PushOuterGradientResponse>;

class CallGuardTest : public ::testing::Test {
 protected:
  CallGuardTest() : directory_(MakeTestDirectory()), authority_(directory_) {
    RpcServer::Spec spec;
    UseTlsDirectory(directory_, spec.listener.tls);
    const TlsFiles own = authority_.Issue("atoll:server:s-0");
    ReplaceTlsFiles(own, spec.listener.tls);
    std::filesystem::copy_file(
        own.ca, spec.listener.tls.ca,
        std::filesystem::copy_options::overwrite_existing);
    spec.services = {&parameters_, &runs_};
    server_ = RpcServer::Start(spec).value();
    server_->SetServing(true);
  }

  std::shared_ptr<grpc::Channel> Dial(const std::string& common_name) {
    return Dial(authority_.Issue(common_name));
  }

  std::shared_ptr<grpc::Channel> Dial(const TlsFiles& files) {
    ChannelOptions options;
    options.tls = files;
    options.peer_role = Role::kServer;
    return MakeChannel(server_->address(), options).value();
  }

  static absl::StatusOr<v1::GetRunResponse> GetRun(
      const std::shared_ptr<grpc::Channel>& channel) {
    v1::GetRunRequest request;
    request.set_run_id("spring");
    return Call(*v1::RunService::NewStub(channel),
                &v1::RunService::Stub::GetRun, request,
                CallOptions{kPatience, "", "server"});
  }

  const std::string directory_;
  TestAuthority authority_;
  ParameterServiceDouble parameters_;
  RunServiceDouble runs_;
  std::unique_ptr<RpcServer> server_;
};

TEST_F(CallGuardTest, HandsPermittedCallsOnWhole) {
  const auto island = Dial("atoll:island:attic");
  const auto run = GetRun(island);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->run().run_id(), "spring");
  const auto stub = v1::ParameterService::NewStub(island);
  grpc::ClientContext context;
  const auto push = stub->PushOuterGradient(&context);
  EXPECT_TRUE(push->Write({}));
  push->WritesDone();
  EXPECT_TRUE(push->Finish().ok());
  grpc::ClientContext pull_context;
  v1::PullParametersResponse response;
  const auto pull = stub->PullParameters(&pull_context, {});
  EXPECT_FALSE(pull->Read(&response));
  EXPECT_TRUE(pull->Finish().ok());
  EXPECT_EQ(parameters_.call_count, 2);
  // A message that cannot be parsed is not.
  EXPECT_EQ(CallAny(island, "/atoll.v1.RunService/GetRun", "\xff"),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(runs_.call_count, 1);
}

TEST_F(CallGuardTest, EveryKindOfMethodIsRefusedWithItsReason) {
  const auto gate = Dial("atoll:gate:g-0");
  for (const char* method : {"/atoll.v1.ParameterService/PushOuterGradient",
                             "/atoll.v1.ParameterService/PullParameters",
                             "/atoll.v1.ParameterService/ImportParameters",
                             "/atoll.v1.ParameterService/PullKept",
                             "/atoll.v1.RunService/GetRun",
                             "/atoll.v1.RunService/DeleteRun"}) {
    // Nothing of a refused message is parsed.
    for (const char* bytes : {"", "\xff"}) {
      EXPECT_EQ(CallAny(gate, method, bytes),
                grpc::StatusCode::PERMISSION_DENIED)
          << method;
    }
  }
  EXPECT_EQ(CallAny(Dial("somebody"), "/atoll.v1.RunService/GetRun"),
            grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(parameters_.call_count, 0);
  EXPECT_EQ(runs_.call_count, 0);
  EXPECT_EQ(GetRun(gate).status().message(),
            "the role gate may not call /atoll.v1.RunService/GetRun");
}

TEST_F(CallGuardTest, GrpcItselfAnswersOnlyCallersThatCount) {
  const auto gate = Dial("atoll:gate:g-0");
  EXPECT_TRUE(CheckServing(gate, kPatience).ok());
  EXPECT_EQ(CallAny(gate, "/atoll.v1.RunService/None"),
            grpc::StatusCode::UNIMPLEMENTED);
  const auto stranger = Dial("somebody");
  EXPECT_EQ(CheckServing(stranger, kPatience).code(),
            absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(CallAny(stranger, "/atoll.v1.RunService/None"),
            grpc::StatusCode::CANCELLED);
  EXPECT_EQ(
      CallAny(stranger,
              "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"),
      grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(CallGuardTest, HandlersOfNewCertificatesHaveTheUsualPriority) {
  const int usual = getpriority(PRIO_PROCESS, gettid());
  const auto stub =
      v1::ParameterService::NewStub(Dial("atoll:island:attic"));
  for (int i = 0; i < 2; ++i) {
    grpc::ClientContext context;
    const auto stream = stub->PushOuterGradient(&context);
    stream->WritesDone();
    EXPECT_TRUE(stream->Finish().ok());
    EXPECT_EQ(parameters_.niceness, usual);
  }
}

TEST_F(CallGuardTest, CallsOfACertificateAreBounded) {
  const TlsFiles files = authority_.Issue("atoll:island:attic");
  // gRPC bounds the streams of each connection.
  const auto stub = v1::ParameterService::NewStub(Dial(files));
  const auto island = Dial(files);
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<PushStream>> streams;
  const auto push = [&] {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    streams.push_back(stub->PushOuterGradient(contexts.back().get()));
    streams.back()->Write({});
  };
  while (parameters_.call_count < CallQuota::kOpenMax) {
    const int before = parameters_.call_count;
    push();
    while (parameters_.call_count == before) std::this_thread::yield();
  }
  const auto run = GetRun(island);
  EXPECT_EQ(run.status().code(), absl::StatusCode::kResourceExhausted)
      << run.status();
  EXPECT_EQ(run.status().message(),
            "island:attic has 256 calls open at this port, or given up just "
            "now; end some, or wait");
  EXPECT_TRUE(HasReason(run.status(), "TOO_MANY_OPEN_CALLS")) << run.status();
  EXPECT_EQ(GetRetryDelay(run.status()), absl::Seconds(1));
  EXPECT_EQ(CheckServing(island, kPatience).code(),
            absl::StatusCode::kResourceExhausted);
  // Others have a bound of their own.
  EXPECT_TRUE(GetRun(Dial("atoll:island:cellar")).ok());
  streams.back()->WritesDone();
  EXPECT_TRUE(streams.back()->Finish().ok());
  absl::Status status = GetRun(island).status();
  // gRPC tells of a call's end before it ends the call.
  while (absl::IsResourceExhausted(status)) status = GetRun(island).status();
  EXPECT_TRUE(status.ok()) << status;
  for (const auto& context : contexts) context->TryCancel();
  for (const auto& stream : streams) {
    if (stream != streams.back()) stream->Finish();
  }
}

TEST_F(CallGuardTest, CallsWithoutARequestCountLikeOthers) {
  const TlsFiles files = authority_.Issue("atoll:island:attic");
  // A connection without a call is shut if many calls wait for a thread.
  const auto channel = Dial(files);
  ASSERT_TRUE(GetRun(channel).ok());
  grpc::GenericStub stub(channel);
  std::vector<std::unique_ptr<LateRequest>> calls;
  for (const char* method :
       {"/atoll.v1.RunService/GetRun", "/grpc.health.v1.Health/Check",
        "/atoll.v1.ParameterService/PullParameters"}) {
    for (int i = 0; i < CallQuota::kOpenMax / 2; ++i) {
      calls.push_back(std::make_unique<LateRequest>(stub, method));
    }
  }
  // One of the last that were begun is refused; the first stays open.
  EXPECT_EQ(calls.back()->Await(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(GetRun(Dial(files)).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(runs_.call_count, 1);
  v1::GetRunRequest request;
  request.set_run_id("spring");
  calls.front()->Send(request.SerializeAsString());
  EXPECT_EQ(calls.front()->Await(), grpc::StatusCode::OK);
  EXPECT_EQ(runs_.call_count, 2);
  for (const auto& call : calls) {
    call->Cancel();
    call->Await();
  }
}

TEST_F(CallGuardTest, FewCallsOfACertificateWaitForRequestsOfAFullPort) {
  std::vector<std::unique_ptr<LateRequest>> calls;
  for (const char* name : {"atoll:island:attic", "atoll:island:cellar",
                           "atoll:island:den"}) {
    const auto channel = Dial(name);
    ASSERT_TRUE(GetRun(channel).ok());
    grpc::GenericStub stub(channel);
    for (int i = 0; i < 250; ++i) {
      calls.push_back(
          std::make_unique<LateRequest>(stub, "/atoll.v1.RunService/GetRun"));
    }
  }
  EXPECT_EQ(calls.back()->Await(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  // A caller that sends its requests is answered, and so is a new one.
  EXPECT_TRUE(GetRun(Dial("atoll:island:hall")).ok());
  for (const auto& call : calls) {
    call->Cancel();
    call->Await();
  }
}

TEST_F(CallGuardTest, AReaderThatIgnoresRetryInfoWaitsForItsAnswer) {
  runs_.is_full = true;
  const auto reader = Dial("atoll:reader:kit");
  const absl::Time begin = absl::Now();
  for (int i = 0; i < RefusedCallers::kRefusedMax + 1; ++i) {
    ASSERT_TRUE(absl::IsResourceExhausted(GetRun(reader).status()));
  }
  // Its next calls are read after RetryInfo, but for one or two that gRPC reads
  // with the answer to a ping.
  std::thread late([&] {
    int count = 0;
    for (; absl::Now() < begin + absl::Seconds(1); ++count) {
      EXPECT_TRUE(absl::IsResourceExhausted(GetRun(reader).status()));
    }
    EXPECT_LE(count, 3);
  });
  const auto island = Dial("atoll:island:attic");
  for (int i = 0; i < 40 * RefusedCallers::kRefusedMax; ++i) {
    EXPECT_TRUE(absl::IsResourceExhausted(GetRun(island).status()));
  }
  EXPECT_TRUE(
      absl::IsResourceExhausted(GetRun(Dial("atoll:reader:kit")).status()));
  // Calls that are held would take more than two minutes.
  EXPECT_LT(absl::Now(), begin + kPatience) << "others are held too";
  late.join();
}

TEST_F(CallGuardTest, OpenStreamsOfARevokedCertificateEnd) {
  const TlsFiles stolen = authority_.Issue("atoll:island:attic");
  const auto channel = Dial(stolen);
  const auto stub = v1::ParameterService::NewStub(channel);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
  const auto push = stub->PushOuterGradient(&context);
  ASSERT_TRUE(push->Write({}));
  const auto other_stub =
      v1::ParameterService::NewStub(Dial("atoll:island:attic"));
  grpc::ClientContext other_context;
  const auto other = other_stub->PushOuterGradient(&other_context);
  ASSERT_TRUE(other->Write({}));
  while (parameters_.call_count < 2) std::this_thread::yield();
  const absl::Time now = absl::Now();
  const std::string serial =
      ReadSerial(ReadTlsFiles(stolen)->cert_pem).value();
  std::ofstream(directory_ + "/crl.pem")
      << MakeRevocationList(authority_.pair(), {{serial, now}}, now).value();
  // Neither side sends anything.
  v1::PushOuterGradientResponse response;
  EXPECT_FALSE(push->Read(&response));
  const grpc::Status ended = push->Finish();
  EXPECT_EQ(ended.error_code(), grpc::StatusCode::UNAVAILABLE)
      << ended.error_message();
  absl::Status status;
  const absl::Time deadline = absl::Now() + kPatience;
  do {  // The channel may not know yet that its connection is shut.
    status = GetRun(channel).status();
  } while (absl::IsUnavailable(status) && absl::Now() < deadline);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "was revoked at")) << status;
  // The stream of the same name with another certificate goes on.
  other->WritesDone();
  EXPECT_TRUE(other->Finish().ok());
}

// Calls that wait for a thread, without a server.
class CallGuardPauseTest : public ::testing::Test {
 protected:
  CallGuardPauseTest()
      : listener_(net::BoundedListener::Listen(
                      {.address = {"127.0.0.1", 0},
                       .first_bytes_max = absl::Minutes(2)})
                      .value()),
        guard_(listener_, nullptr, /*holds_readers=*/true),
        contexts_(guard_.MakeContexts()) {
    listener_->Run([this](UniqueFd fd,
                          const net::BoundedListener::Connection&) {
      MutexLock lock(&mutex_);
      served_.push_back(std::move(fd));
      changed_.SignalAll();
    });
  }
  ~CallGuardPauseTest() override {
    listener_->Stop();
    while (!waiting_.empty()) End();
  }

  void Begin(int count) {
    for (int i = 0; i < count; ++i) {
      waiting_.push_back(contexts_->NewCallbackServerContext());
    }
  }
  void End() {
    contexts_->Release(waiting_.back());
    waiting_.pop_back();
  }

  UniqueFd DialAndSend(int bytes = 1) {
    UniqueFd fd = net::Dial(listener_->address(),
                            {absl::Now() + kPatience, -1})
                      .value();
    EXPECT_EQ(send(fd.get(), std::string(bytes, 'x').data(), bytes,
                   MSG_NOSIGNAL),
              bytes);
    return fd;
  }
  void AwaitServed(size_t count) {
    MutexLock lock(&mutex_);
    while (served_.size() < count) changed_.Wait(&mutex_);
  }
  size_t served() {
    MutexLock lock(&mutex_);
    return served_.size();
  }
  // Ends the oldest connection, and waits until the listener has seen it.
  void EndOldest() {
    const int before = listener_->count();
    {
      MutexLock lock(&mutex_);
      shutdown(served_.front().get(), SHUT_RDWR);
    }
    while (listener_->count() == before) std::this_thread::yield();
  }

  Mutex mutex_;
  CondVar changed_;
  std::vector<UniqueFd> served_ ABSL_GUARDED_BY(mutex_);
  const std::shared_ptr<net::BoundedListener> listener_;
  CallGuard guard_;
  const std::unique_ptr<grpc::ContextAllocator> contexts_;
  std::vector<grpc::CallbackServerContext*> waiting_;
};

TEST_F(CallGuardPauseTest, ManyWaitingCallsLetNoConnectionInUntilFewWait) {
  const UniqueFd first = DialAndSend();
  AwaitServed(1);
  Begin(256);
  const UniqueFd second = DialAndSend(8 << 10);
  const UniqueFd third = DialAndSend();
  AwaitServed(3);
  // A stranger that has sent much is shut; a proven peer keeps its connection,
  // and so does one that may be in its handshake.
  sockaddr_storage own = {};
  socklen_t size = sizeof(own);
  ASSERT_EQ(getsockname(first.get(), reinterpret_cast<sockaddr*>(&own), &size),
            0);
  listener_->Prove(net::ToPeerText(reinterpret_cast<const sockaddr&>(own)),
                   "island");
  const absl::Time begin = absl::Now();
  Begin(1);
  EXPECT_EQ(listener_->count(), 2);
  const UniqueFd late = DialAndSend();
  EndOldest();  // The listener's thread goes on.
  // A pause that lasts would end by itself.
  if (absl::Now() < begin + absl::Seconds(1)) {
    EXPECT_EQ(served(), 3u);
  }
  while (waiting_.size() > 64) End();
  AwaitServed(4);
}

TEST_F(CallGuardPauseTest, IfVeryManyCallsWaitAllStrangersAreShut) {
  const UniqueFd few = DialAndSend();
  AwaitServed(1);
  Begin(300);
  EXPECT_EQ(listener_->count(), 1);
  while (listener_->count() > 0) Begin(64);
  EXPECT_GT(waiting_.size(), 1024u);
}

TEST_F(CallGuardPauseTest, NoPauseIsForEver) {
  Begin(300);
  const UniqueFd late = DialAndSend();
  AwaitServed(1);
  EXPECT_EQ(waiting_.size(), 300u);
}

TEST_F(CallGuardTest, AServiceWhoseCallsCannotBeCheckedDoesNotStart) {
  v1::RunService::Service synchronous;
  v1::RunService::WithGenericMethod_GetRun<v1::RunService::CallbackService>
      generic;
  v1::RunService::AsyncService asynchronous;
  for (grpc::Service* service :
       std::initializer_list<grpc::Service*>{&synchronous, &generic,
                                             &asynchronous}) {
    RpcServer::Spec spec;
    spec.listener.tls = authority_.Issue("atoll:coordinator:c");
    spec.services = {service};
    EXPECT_EQ(RpcServer::Start(spec).status().code(),
              absl::StatusCode::kInternal);
  }
}

}  // namespace
}  // namespace atl::rpc
