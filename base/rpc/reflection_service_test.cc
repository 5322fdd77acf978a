#include "base/rpc/reflection_service.h"

#include <memory>
#include <set>
#include <string>

#include "atoll/v1/run_service.grpc.pb.h"
#include "base/rpc/channel.h"
#include "base/rpc/listener.h"
#include "google/protobuf/descriptor.pb.h"
#include "grpc/reflection/v1alpha/reflection.grpc.pb.h"
#include "gtest/gtest.h"

namespace atl::rpc {
namespace {

using grpc::reflection::v1alpha::ServerReflection;
using Question = grpc::reflection::v1alpha::ServerReflectionRequest;
using Answer = grpc::reflection::v1alpha::ServerReflectionResponse;

// One stream, which every question of a test goes through.
class ReflectionServiceTest : public ::testing::Test {
 protected:
  ReflectionServiceTest() {
    RpcServer::Spec spec;
    spec.services = {&runs_};
    server_ = RpcServer::Start(spec).value();
    stub_ = ServerReflection::NewStub(
        MakeChannel(server_->address(), {}).value());
    stream_ = stub_->ServerReflectionInfo(&context_);
  }
  ~ReflectionServiceTest() override {
    stream_->WritesDone();
    EXPECT_TRUE(stream_->Finish().ok());
  }

  Answer Ask(const Question& question) {
    Answer answer;
    EXPECT_TRUE(stream_->Write(question));
    EXPECT_TRUE(stream_->Read(&answer));
    EXPECT_EQ(answer.original_request().SerializeAsString(),
              question.SerializeAsString());
    return answer;
  }

  static std::set<std::string> FileNames(const Answer& answer) {
    std::set<std::string> names;
    for (const std::string& bytes :
         answer.file_descriptor_response().file_descriptor_proto()) {
      google::protobuf::FileDescriptorProto file;
      EXPECT_TRUE(file.ParseFromString(bytes));
      EXPECT_TRUE(names.insert(file.name()).second) << file.name();
    }
    return names;
  }

  v1::RunService::CallbackService runs_;
  std::unique_ptr<RpcServer> server_;
  grpc::ClientContext context_;
  std::unique_ptr<ServerReflection::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<Question, Answer>> stream_;
};

TEST_F(ReflectionServiceTest, ListsTheServicesOfThePort) {
  Question question;
  question.set_list_services("");
  const Answer answer = Ask(question);
  std::set<std::string> names;
  for (const auto& service : answer.list_services_response().service()) {
    names.insert(service.name());
  }
  EXPECT_EQ(names, (std::set<std::string>{
                       "atoll.v1.RunService", "grpc.health.v1.Health",
                       "grpc.reflection.v1alpha.ServerReflection"}));
}

TEST_F(ReflectionServiceTest, ReturnsAFileWithAllThatItImports) {
  Question by_symbol;
  by_symbol.set_file_containing_symbol("atoll.v1.RunService.GetRun");
  const std::set<std::string> names = FileNames(Ask(by_symbol));
  for (const char* name : {"atoll/v1/run_service.proto", "atoll/v1/run.proto",
                           "google/protobuf/timestamp.proto"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  Question by_name;
  by_name.set_file_by_filename("atoll/v1/run_service.proto");
  EXPECT_EQ(FileNames(Ask(by_name)), names);
}

TEST_F(ReflectionServiceTest, AQuestionWithoutAnAnswerEndsNoStream) {
  Question unknown;
  unknown.set_file_containing_symbol("atoll.v1.None");
  EXPECT_EQ(Ask(unknown).error_response().error_code(),
            grpc::StatusCode::NOT_FOUND);
  Question extension;
  extension.mutable_file_containing_extension()->set_containing_type("x");
  EXPECT_EQ(Ask(extension).error_response().error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(Ask({}).error_response().error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

}  // namespace
}  // namespace atl::rpc
