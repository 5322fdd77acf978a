#include "base/rpc/call_metrics.h"

#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "atoll/v1/parameter_service.grpc.pb.h"
#include "atoll/v1/run_service.grpc.pb.h"
#include "base/rpc/listener.h"
#include "base/rpc/testing/raw_calls.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"

namespace atl::rpc {
namespace {

constexpr char kGetRun[] = "atoll.v1.RunService/GetRun";
constexpr char kPush[] = "atoll.v1.ParameterService/PushOuterGradient";

// Synchronous handlers.
class RunServiceDouble : public v1::RunService::Service {
  grpc::Status GetRun(grpc::ServerContext *, const v1::GetRunRequest *request,
                      v1::GetRunResponse *) override {
    return request->run_id() == "none"
               ? grpc::Status(grpc::StatusCode::NOT_FOUND, "no such run")
               : grpc::Status::OK;
  }
};

// Callback handlers, one of them raw.
class ParameterServiceDouble
    : public v1::ParameterService::WithRawCallbackMethod_PushOuterGradient<
          v1::ParameterService::Service> {
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>
      *PushOuterGradient(grpc::CallbackServerContext *) override {
    return new Drain;
  }
};

class CallMetricsTest : public ::testing::Test {
 protected:
  std::unique_ptr<RpcServer> Start(std::vector<grpc::Service *> services) {
    RpcServer::Spec spec;
    spec.services = std::move(services);
    spec.metrics = &metrics_;
    auto server = RpcServer::Start(spec);
    EXPECT_TRUE(server.ok()) << server.status();
    return server.ok() ? *std::move(server) : nullptr;
  }

  static std::shared_ptr<grpc::Channel> Dial(const RpcServer &server) {
    return grpc::CreateChannel(server.address(),
                               grpc::InsecureChannelCredentials());
  }

  static grpc::StatusCode GetRun(const RpcServer &server,
                                 const std::string &run_id) {
    grpc::ClientContext context;
    v1::GetRunRequest request;
    request.set_run_id(run_id);
    v1::GetRunResponse response;
    return v1::RunService::NewStub(Dial(server))
        ->GetRun(&context, request, &response)
        .error_code();
  }

  // By method: the calls that began.
  std::map<std::string, double> Started() const {
    std::map<std::string, double> calls;
    for (const auto &family : metrics_.Collect()) {
      if (family.name != "grpc_server_call_started_total") continue;
      for (const auto &metric : family.metric) {
        calls[metric.label.at(0).value] = metric.counter.value;
      }
    }
    return calls;
  }

  // By "method status": the calls that ended.
  std::map<std::string, uint64_t> Ended() const {
    std::map<std::string, uint64_t> calls;
    for (const auto &family : metrics_.Collect()) {
      if (family.name != "grpc_server_call_duration_seconds") continue;
      for (const auto &metric : family.metric) {
        std::map<std::string, std::string> labels;
        for (const auto &label : metric.label) labels[label.name] = label.value;
        calls[absl::StrCat(labels["grpc_method"], " ", labels["grpc_status"])] =
            metric.histogram.sample_count;
      }
    }
    return calls;
  }

  using Calls = std::map<std::string, double>;
  using Ends = std::map<std::string, uint64_t>;

  Metrics metrics_;
  RunServiceDouble run_service_;
  ParameterServiceDouble parameter_service_;
};

TEST_F(CallMetricsTest, CountsCallsByMethodAndStatus) {
  const auto server = Start({&run_service_});
  EXPECT_EQ(GetRun(*server, "run"), grpc::StatusCode::OK);
  EXPECT_EQ(GetRun(*server, "run"), grpc::StatusCode::OK);
  EXPECT_EQ(GetRun(*server, "none"), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Started(), (Calls{{kGetRun, 3}}));
  EXPECT_EQ(Ended(), (Ends{{absl::StrCat(kGetRun, " OK"), 2},
                           {absl::StrCat(kGetRun, " NOT_FOUND"), 1}}));
}

TEST_F(CallMetricsTest, ARawStreamCountsOnceAtItsEnd) {
  const auto server = Start({&parameter_service_});
  const auto stub = v1::ParameterService::NewStub(Dial(*server));
  grpc::ClientContext context;
  const auto stream = stub->PushOuterGradient(&context);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(stream->Write({}));
  EXPECT_EQ(Ended(), Ends());
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(Started(), (Calls{{kPush, 1}}));
  EXPECT_EQ(Ended(), (Ends{{absl::StrCat(kPush, " OK"), 1}}));
}

TEST_F(CallMetricsTest, ACancelledStreamCountsOnce) {
  const auto server = Start({&parameter_service_});
  const auto stub = v1::ParameterService::NewStub(Dial(*server));
  grpc::ClientContext context;
  const auto stream = stub->PushOuterGradient(&context);
  EXPECT_TRUE(stream->Write({}));
  context.TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  server->Stop();  // Waits for its handler.
  uint64_t ended = 0;
  for (const auto &[method, count] : Ended()) ended += count;
  double started = 0;
  for (const auto &[method, count] : Started()) started += count;
  EXPECT_EQ(static_cast<double>(ended), started);
  EXPECT_LE(ended, 1u);
}

TEST_F(CallMetricsTest, AMethodThatNoServiceHasIsOther) {
  // gRPC answers it otherwise if a service has synchronous handlers.
  for (const std::vector<grpc::Service *> &services :
       {std::vector<grpc::Service *>{&run_service_},
        std::vector<grpc::Service *>{&parameter_service_},
        std::vector<grpc::Service *>{&run_service_, &parameter_service_},
        std::vector<grpc::Service *>{}}) {
    const auto server = Start(services);
    for (const char *method : {"/a/b", "/atoll.v1.RunService/None", "/x"}) {
      EXPECT_EQ(CallAny(Dial(*server), method),
                grpc::StatusCode::UNIMPLEMENTED);
    }
  }
  EXPECT_EQ(Started(), (Calls{{"other", 12}}));
  EXPECT_EQ(Ended(), (Ends{{"other UNIMPLEMENTED", 12}}));
}

TEST_F(CallMetricsTest, ServersShareTheFamilies) {
  const auto first = Start({&run_service_});
  const auto second = Start({&run_service_});
  GetRun(*first, "run");
  GetRun(*second, "run");
  EXPECT_EQ(Started(), (Calls{{kGetRun, 2}}));
}

}  // namespace
}  // namespace atl::rpc
