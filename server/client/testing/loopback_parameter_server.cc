#include "server/client/testing/loopback_parameter_server.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/codec/codec.h"
#include "base/layout/digest.h"
#include "base/layout/encoded_layout.h"
#include "base/rpc/call.h"
#include "base/rpc/chunk_codec.h"
#include "base/rpc/status.h"
#include "base/status/status_macros.h"

namespace atl::server {
namespace {

constexpr int kNever = -1;
constexpr int64_t kChunkBlocks = 64;

template <typename Response>
void AddMissing(const std::vector<bool>& blocks, int64_t first,
                Response& response) {
  for (size_t b = 0; b < blocks.size();) {
    size_t end = b;
    while (end < blocks.size() && !blocks[end]) ++end;
    if (end > b) {
      auto* range = response.add_missing();
      range->set_begin(first + static_cast<int64_t>(b));
      range->set_end(first + static_cast<int64_t>(end));
    }
    b = std::max(end, b + 1);
  }
}

}  // namespace

LoopbackParameterServer::LoopbackParameterServer(const RunLayout& layout,
                                                 int32_t shard,
                                                 int32_t shard_count)
    : layout_(layout), shard_(shard), shard_count_(shard_count) {
  rpc::RpcServer::Spec spec;
  spec.services = {this};
  spec.message_bytes_max = rpc::kDataMessageBytesMax;
  auto server = rpc::RpcServer::Start(spec);
  if (!server.ok()) {
    std::fprintf(stderr, "%s\n", server.status().ToString().c_str());
    std::abort();
  }
  server_ = *std::move(server);
}

LoopbackParameterServer::~LoopbackParameterServer() { server_.reset(); }

void LoopbackParameterServer::FailNext(Fault fault) {
  std::lock_guard<std::mutex> lock(mutex_);
  faults_.push_back(std::move(fault));
}

void LoopbackParameterServer::SetVersion(int32_t fragment, int64_t version,
                                         std::vector<float> elements) {
  std::lock_guard<std::mutex> lock(mutex_);
  versions_[{fragment, version}] = std::move(elements);
}

std::map<std::pair<int32_t, int64_t>, LoopbackParameterServer::Received>
LoopbackParameterServer::received() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return received_;
}

int LoopbackParameterServer::chunk_count() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return chunk_count_;
}

int64_t LoopbackParameterServer::payload_bytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return payload_bytes_;
}

int LoopbackParameterServer::stream_count() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return stream_count_;
}

std::string LoopbackParameterServer::session() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return session_;
}

int64_t LoopbackParameterServer::first_chunk_bytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return first_chunk_bytes_;
}

std::string LoopbackParameterServer::pulled_run_uid() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return pulled_run_uid_;
}

bool LoopbackParameterServer::WaitForChunks(int count) {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_for(lock, std::chrono::seconds(30),
                           [&] { return chunk_count_ >= count; });
}

bool LoopbackParameterServer::WaitForStreams(int count) {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_for(lock, std::chrono::seconds(30),
                           [&] { return stream_count_ >= count; });
}

LoopbackParameterServer::Fault LoopbackParameterServer::BeginStream(
    const grpc::ServerContext& context) {
  std::lock_guard<std::mutex> lock(mutex_);
  ++stream_count_;
  changed_.notify_all();
  const auto found = context.client_metadata().find(rpc::kSessionMetadata);
  session_ = found == context.client_metadata().end()
                 ? ""
                 : std::string(found->second.data(), found->second.size());
  Fault fault;
  fault.after_chunk_count = kNever;
  if (!faults_.empty()) {
    fault = faults_.front();
    faults_.pop_front();
  }
  return fault;
}

void LoopbackParameterServer::Hang(grpc::ServerContext* context) {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!context->IsCancelled()) {
    changed_.wait_for(lock, std::chrono::milliseconds(10));
  }
}

absl::Status LoopbackParameterServer::Keep(Received& received, int32_t fragment,
                                           const v1::Chunk& chunk) {
  const IndexRange blocks = layout_.ShardBlocks(fragment, shard_, shard_count_);
  const IndexRange range = {chunk.first_block(),
                            chunk.first_block() + chunk.block_count()};
  if (range.begin < blocks.begin || range.empty() || range.end > blocks.end) {
    return absl::InvalidArgumentError("a chunk outside the shard");
  }
  const codec::Codec* const codec = codec::FindCodec(chunk.codec());
  if (codec == nullptr) return absl::InvalidArgumentError("no such codec");
  const EncodedLayout layout(layout_, fragment, *codec);
  if (static_cast<int64_t>(chunk.payload().size()) != layout.ByteCount(range) ||
      chunk.payload().size() > (1 << 20)) {
    return absl::InvalidArgumentError("a chunk of another size");
  }
  RETURN_IF_ERROR(rpc::CheckCrc32c(rpc::FromProto(chunk)));
  std::lock_guard<std::mutex> lock(mutex_);
  received.encoded.resize(layout.ByteCount(blocks));
  std::copy(
      chunk.payload().begin(), chunk.payload().end(),
      received.encoded.begin() + layout.ByteCount({blocks.begin, range.begin}));
  for (int64_t b = range.begin; b < range.end; ++b) {
    received.blocks[b - blocks.begin] = true;
  }
  ++chunk_count_;
  payload_bytes_ += static_cast<int64_t>(chunk.payload().size());
  changed_.notify_all();
  return absl::OkStatus();
}

template <typename Request, typename Response>
absl::Status LoopbackParameterServer::Receive(
    grpc::ServerContext* context, Received& received, int32_t fragment,
    const Fault& fault, grpc::ServerReaderWriter<Response, Request>* stream) {
  const IndexRange blocks = layout_.ShardBlocks(fragment, shard_, shard_count_);
  Response answer;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ++received.sending_count;
    received.blocks.resize(blocks.size());
    AddMissing(received.blocks, blocks.begin, answer);
    answer.set_stored(received.stored);
  }
  if (fault.kind != Fault::kLateAnswer) stream->Write(answer);
  int count = 0;
  Request request;
  absl::Status status;
  while (true) {
    if (count == fault.after_chunk_count) {
      if (fault.kind == Fault::kEnd) status = fault.status;
      if (fault.kind == Fault::kHang) Hang(context);
      if (fault.kind == Fault::kLateAnswer) stream->Write(answer);
    }
    if (!status.ok() || !stream->Read(&request)) break;
    status = Keep(received, fragment, request.chunk());
    ++count;
  }
  std::unique_lock<std::mutex> lock(mutex_);
  --received.sending_count;
  changed_.notify_all();
  RETURN_IF_ERROR(status);
  const auto is_whole = [&received] {
    return std::find(received.blocks.begin(), received.blocks.end(), false) ==
           received.blocks.end();
  };
  while (!is_whole() && received.sending_count > 0 && !context->IsCancelled()) {
    changed_.wait_for(lock, std::chrono::milliseconds(10));
  }
  if (!is_whole()) return absl::UnavailableError("not complete");
  received.stored = true;
  answer.Clear();
  answer.set_stored(true);
  stream->Write(answer);
  return absl::OkStatus();
}

grpc::Status LoopbackParameterServer::PushOuterGradient(
    grpc::ServerContext* context,
    grpc::ServerReaderWriter<v1::PushOuterGradientResponse,
                             v1::PushOuterGradientRequest>* stream) {
  const Fault fault = BeginStream(*context);
  v1::PushOuterGradientRequest request;
  if (!stream->Read(&request) || !request.has_header()) {
    return {grpc::StatusCode::INVALID_ARGUMENT, "no header"};
  }
  const v1::ContributionKey key = request.header().info().key();
  Received* received = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    received = &received_[{key.fragment(), key.seq()}];
    received->header = request.header();
  }
  return rpc::ToGrpc(
      Receive(context, *received, key.fragment(), fault, stream));
}

grpc::Status LoopbackParameterServer::ImportParameters(
    grpc::ServerContext* context,
    grpc::ServerReaderWriter<v1::ImportParametersResponse,
                             v1::ImportParametersRequest>* stream) {
  const Fault fault = BeginStream(*context);
  v1::ImportParametersRequest request;
  if (!stream->Read(&request) || !request.has_header()) {
    return {grpc::StatusCode::INVALID_ARGUMENT, "no header"};
  }
  const int32_t fragment = request.header().fragment();
  Received* received = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    received = &received_[{fragment, 0}];
    received->import_header = request.header();
  }
  return rpc::ToGrpc(Receive(context, *received, fragment, fault, stream));
}

void LoopbackParameterServer::SetChain(int32_t fragment, int64_t from_version,
                                       int64_t version, codec::CodecId codec,
                                       std::vector<std::string> deltas) {
  std::lock_guard<std::mutex> lock(mutex_);
  chains_[{fragment, version}] = {from_version, codec, std::move(deltas)};
}

LoopbackParameterServer::Chain LoopbackParameterServer::MakeChain(
    const v1::PullParametersRequest& request) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = chains_.find({request.fragment(), request.version()});
  if (found != chains_.end() && request.has_from_version() &&
      request.from_version() == found->second.from_version) {
    return found->second;
  }
  // The version itself, as f32.
  const auto& elements = versions_.at({request.fragment(), request.version()});
  Chain chain;
  chain.deltas.emplace_back(reinterpret_cast<const char*>(elements.data()),
                            elements.size() * sizeof(float));
  return chain;
}

grpc::Status LoopbackParameterServer::PullParameters(
    grpc::ServerContext* context, const v1::PullParametersRequest* request,
    grpc::ServerWriter<v1::PullParametersResponse>* writer) {
  const Fault fault = BeginStream(*context);
  const int32_t fragment = request->fragment();
  std::vector<float> elements;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    first_chunk_bytes_ = request->first_chunk_bytes();
    pulled_run_uid_ = request->run_uid();
    const auto found = versions_.find({fragment, request->version()});
    if (found == versions_.end()) {
      return {grpc::StatusCode::FAILED_PRECONDITION, "no such version yet"};
    }
    elements = found->second;
  }
  const Chain chain = MakeChain(*request);
  const EncodedLayout encoded(layout_, fragment, codec::GetCodec(chain.codec));
  const IndexRange held = layout_.ShardBlocks(fragment, shard_, shard_count_);
  const IndexRange span = layout_.BlockElements(fragment, held);
  v1::PullParametersResponse response;
  v1::PullHeader* header = response.mutable_header();
  header->set_version(request->version());
  *header->mutable_range() = request->range();
  header->set_codec(static_cast<v1::Codec>(chain.codec));
  header->set_content(chain.from_version >= 0 ? v1::PULL_CONTENT_CHAIN
                                              : request->content());
  header->set_from_version(chain.from_version);
  *header->mutable_digest() = RangeDigest(layout_, fragment, held,
                                          absl::MakeConstSpan(elements).subspan(
                                              span.begin, span.size()))
                                  .ToProto();
  if (fault.kind == Fault::kCorruptDigest) header->mutable_digest()->set_low(1);
  writer->Write(response);
  int count = 0;
  for (int64_t b = request->range().begin(); b < request->range().end();) {
    const int64_t end = std::min(b + kChunkBlocks, request->range().end());
    for (const std::string& delta : chain.deltas) {
      v1::Chunk* chunk = response.mutable_chunk();
      chunk->set_codec(static_cast<v1::Codec>(chain.codec));
      chunk->set_first_block(b);
      chunk->set_block_count(static_cast<int32_t>(end - b));
      chunk->set_payload(
          delta.substr(encoded.ByteOffset(b), encoded.ByteCount({b, end})));
      rpc::ReceivedChunk whole = rpc::FromProto(*chunk);
      chunk->set_crc32c(rpc::ChunkCrc32c(whole.header, whole.payload));
      if (count == fault.after_chunk_count) {
        if (fault.kind == Fault::kEnd) return rpc::ToGrpc(fault.status);
        if (fault.kind == Fault::kHang) Hang(context);
        if (fault.kind == Fault::kLoseChains) {
          std::lock_guard<std::mutex> lock(mutex_);
          chains_.clear();
          return {grpc::StatusCode::UNAVAILABLE, "lost"};
        }
        if (fault.kind == Fault::kCorruptChecksum) {
          chunk->set_crc32c(chunk->crc32c() ^ 1);
        }
      }
      if (!writer->Write(response)) return grpc::Status::CANCELLED;
      ++count;
    }
    b = end;
  }
  if (count == fault.after_chunk_count && fault.kind == Fault::kEnd) {
    return rpc::ToGrpc(fault.status);
  }
  return grpc::Status::OK;
}

}  // namespace atl::server
