#include <memory>

#include "atoll_test/note.pb.h"
#include "atoll_test/note_service.grpc.pb.h"
#include "atoll_test/note_service.pb.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"

namespace atoll_test {
namespace {

class EchoService final : public NoteService::CallbackService {
  grpc::ServerUnaryReactor* Echo(grpc::CallbackServerContext* context,
                                 const EchoRequest* request,
                                 EchoResponse* response) override {
    *response->mutable_note() = request->note();
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

TEST(ProtoTest, ServesAGeneratedServiceInProcess) {
  EchoService service;
  grpc::ServerBuilder builder;
  builder.RegisterService(&service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  auto stub = NoteService::NewStub(server->InProcessChannel({}));

  grpc::ClientContext context;
  EchoRequest request;
  request.mutable_note()->set_text("hello");
  EchoResponse response;
  grpc::Status status = stub->Echo(&context, request, &response);

  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.note().text(), "hello");
  server->Shutdown();
}

}  // namespace
}  // namespace atoll_test
