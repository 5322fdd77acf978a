// One shard in memory behind a real gRPC server, for client tests. Thread-safe.
// The protobuf library parses its messages, which checks our hand-written
// bytes.

#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "atoll/v1/parameter_service.grpc.pb.h"
#include "base/codec/codec.h"
#include "base/layout/layout.h"
#include "base/rpc/listener.h"

namespace atl::server {

class LoopbackParameterServer : public v1::ParameterService::Service {
 public:
  struct Fault {
    enum Kind {
      kEnd,              // Ends with `status` ...
      kHang,             // Moves nothing more until cancelled ...
      kLateAnswer,       // Push: answers what it misses ...
      kCorruptChecksum,  // Pull: a chunk's checksum is wrong ...
      kCorruptDigest,    // Pull: the header's digest is wrong.
      kLoseChains,       // Pull: ends, and offers no chains from now on ...
    };
    Kind kind = kEnd;
    int after_chunk_count = 0;  // ... after so many chunks.
    absl::Status status;
  };

  struct Received {
    v1::PushHeader header;           // Of a push.
    v1::ImportHeader import_header;  // Of an import.
    std::vector<char> encoded;       // Of the shard's range.
    std::vector<bool> blocks;        // True: it has come.
    bool stored = false;
    int sending_count = 0;  // Streams that may still send.
  };

  // `layout` must outlive it.
  LoopbackParameterServer(const RunLayout& layout, int32_t shard,
                          int32_t shard_count);
  ~LoopbackParameterServer() override;

  const std::string& address() const { return server_->address(); }

  // Faults apply to the next streams, in order.
  void FailNext(Fault fault);
  // Serves `elements`, the whole fragment, as `version`.
  void SetVersion(int32_t fragment, int64_t version,
                  std::vector<float> elements);

  // Offers callers with the replica of `from_version` these deltas of the whole
  // fragment, one a version, which lead to `version`, set by SetVersion.
  void SetChain(int32_t fragment, int64_t from_version, int64_t version,
                codec::CodecId codec, std::vector<std::string> deltas);

  // By fragment and seq; imports have seq 0.
  std::map<std::pair<int32_t, int64_t>, Received> received() const;
  int chunk_count() const;            // Received, all streams together.
  int64_t payload_bytes() const;      // Of them.
  int stream_count() const;           // Opened.
  std::string session() const;        // Metadata of the newest stream.
  int64_t first_chunk_bytes() const;  // Of the newest pull.
  std::string pulled_run_uid() const;  // Of the newest pull.
  // Waits for `count` chunks; false after a timeout.
  bool WaitForChunks(int count);
  bool WaitForStreams(int count);

  grpc::Status PushOuterGradient(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::PushOuterGradientResponse,
                               v1::PushOuterGradientRequest>* stream) override;
  grpc::Status PullParameters(
      grpc::ServerContext* context, const v1::PullParametersRequest* request,
      grpc::ServerWriter<v1::PullParametersResponse>* writer) override;
  grpc::Status ImportParameters(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::ImportParametersResponse,
                               v1::ImportParametersRequest>* stream) override;

 private:
  template <typename Request, typename Response>
  absl::Status Receive(grpc::ServerContext* context, Received& received,
                       int32_t fragment, const Fault& fault,
                       grpc::ServerReaderWriter<Response, Request>* stream);
  absl::Status Keep(Received& received, int32_t fragment,
                    const v1::Chunk& chunk);
  struct Chain {
    int64_t from_version = -1;
    codec::CodecId codec = codec::CodecId::kF32;
    std::vector<std::string> deltas;
  };

  // The answer to a pull: one payload for each delta of the chain.
  Chain MakeChain(const v1::PullParametersRequest& request) const;
  Fault BeginStream(const grpc::ServerContext& context);
  void Hang(grpc::ServerContext* context);

  const RunLayout& layout_;
  const int32_t shard_;
  const int32_t shard_count_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::map<std::pair<int32_t, int64_t>, Received> received_;
  std::map<std::pair<int32_t, int64_t>, std::vector<float>> versions_;
  std::map<std::pair<int32_t, int64_t>, Chain> chains_;
  std::deque<Fault> faults_;
  int chunk_count_ = 0;
  int64_t payload_bytes_ = 0;
  int stream_count_ = 0;
  std::string session_;
  int64_t first_chunk_bytes_ = 0;
  std::string pulled_run_uid_;
  // Last, because it serves this object.
  std::unique_ptr<rpc::RpcServer> server_;
};

}  // namespace atl::server
