// Calls and handlers of raw bytes, for tests of listeners.

#pragma once

#include <memory>
#include <string>

#include "grpcpp/channel.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "grpcpp/support/status_code_enum.h"

namespace atl::rpc {

// Reads messages up to the end, and finishes. Deletes itself.
class Drain
    : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Drain() { StartRead(&message_); }
  void OnReadDone(bool ok) override {
    if (ok) return StartRead(&message_);
    Finish(grpc::Status::OK);
  }
  void OnDone() override { delete this; }

 private:
  grpc::ByteBuffer message_;
};

// Calls `method` ("/atoll.v1.RunService/GetRun"), which may be of any kind or
// not exist, with one message of `bytes`. Waits for at most two minutes.
grpc::StatusCode CallAny(const std::shared_ptr<grpc::Channel>& channel,
                         const std::string& method,
                         const std::string& bytes = "");

}  // namespace atl::rpc
