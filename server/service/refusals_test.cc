// Every refusal of the data path: code, reason for programs, text for people.

#include <chrono>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/rpc/call.h"
#include "base/rpc/status.h"
#include "base/status/refusal.h"
#include "gtest/gtest.h"
#include "server/service/testing/test_cluster.h"

namespace atl::server {
namespace {

using Code = absl::StatusCode;
using PushRequest = v1::PushOuterGradientRequest;
using ImportRequest = v1::ImportParametersRequest;

std::string ContractText() {
  std::ifstream file("proto/ERRORS.md");
  return {std::istreambuf_iterator<char>(file), {}};
}

class RefusalsTest : public testing::Test {
 protected:
  RefusalsTest() : contract_(ContractText()) { Begin(SmallRun()); }

  // `has_room`: disk space for the round's contributions.
  void Begin(const v1::Run& run, bool started = true, bool has_room = true) {
    stub_.reset();
    cluster_ = std::make_unique<TestCluster>(run, 1);
    absl::Status begun = cluster_->StartAll();
    if (!has_room) {
      begun = cluster_->WaitForReport(0, [](const auto& r) {
                          return r.initialized();
                        }).status();
      cluster_->fs(0).SetCapacity(1);
    }
    if (begun.ok() && started) begun = cluster_->Begin();
    if (!started) {
      begun = cluster_
                  ->WaitForReport(0, [](const auto& r) {
                    return !r.initialized();
                  })
                  .status();
    }
    EXPECT_TRUE(begun.ok()) << begun;
    stub_ = cluster_->Stub(0);
    elements_ = cluster_->Gradient(0, 0, 0);
    seq_ = 0;
  }

  PushRequest Header() {
    v1::ContributionInfo info = cluster_->Info(0, 0, 0, elements_);
    info.mutable_key()->set_seq(++seq_);
    PushRequest request;
    *request.mutable_header() = cluster_->Header(info, 0);
    return request;
  }
  PushRequest Header(const std::function<void(v1::PushHeader&)>& change) {
    PushRequest request = Header();
    change(*request.mutable_header());
    return request;
  }

  // Blocks [0, 10) under the newest header's key, with a valid checksum.
  PushRequest Chunk(const std::function<void(v1::Chunk&)>& change) {
    PushRequest request;
    v1::Chunk& chunk = *request.mutable_chunk();
    *chunk.mutable_key() = cluster_->Info(0, 0, 0, elements_).key();
    chunk.mutable_key()->set_seq(seq_);
    Fill(chunk);
    change(chunk);
    SumChunk(chunk);
    return request;
  }
  void Fill(v1::Chunk& chunk) const {
    chunk.set_codec(v1::CODEC_F32);
    chunk.set_block_count(10);
    chunk.set_payload(
        elements_.data(),
        static_cast<size_t>(
            cluster_->layout().BlockElements(0, {0, 10}).size()) *
            sizeof(float));
  }

  ImportRequest ImportHeader() const {
    ImportRequest request;
    v1::ImportHeader& header = *request.mutable_header();
    header.set_run_id(SmallRun().run_id());
    header.set_layout_fingerprint(cluster_->layout().fingerprint());
    header.mutable_digest()->set_low(1);
    return request;
  }
  ImportRequest ImportChunk() const {
    ImportRequest request;
    request.mutable_chunk()->mutable_key();
    Fill(*request.mutable_chunk());
    SumChunk(*request.mutable_chunk());
    return request;
  }

  template <typename Request, typename Open>
  absl::Status Stream(Open open, const std::vector<Request>& requests,
                      const std::string& secret) {
    grpc::ClientContext context;
    context.AddMetadata(rpc::kSessionMetadata, rpc::ToHex(secret));
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::seconds(20));
    auto stream = open(&context);
    for (const Request& request : requests) stream->Write(request);
    stream->WritesDone();
    decltype(Answer(request_type<Request>{})) answer;
    while (stream->Read(&answer)) {
    }
    return rpc::FromGrpc(stream->Finish());
  }
  template <typename Request>
  struct request_type {};
  static v1::PushOuterGradientResponse Answer(request_type<PushRequest>);
  static v1::ImportParametersResponse Answer(request_type<ImportRequest>);

  absl::Status Push(const std::vector<PushRequest>& requests,
                    const std::string& secret = TestCluster::Secret(0)) {
    return Stream(
        [this](auto* context) { return stub_->PushOuterGradient(context); },
        requests, secret);
  }
  absl::Status Import(const std::vector<ImportRequest>& requests) {
    return Stream(
        [this](auto* context) { return stub_->ImportParameters(context); },
        requests, "");
  }
  absl::Status Pull(
      const std::function<void(v1::PullParametersRequest&)>& change) {
    v1::PullParametersRequest request;
    request.set_run_id(SmallRun().run_id());
    request.set_layout_fingerprint(cluster_->layout().fingerprint());
    change(request);
    grpc::ClientContext context;
    auto stream = stub_->PullParameters(&context, request);
    v1::PullParametersResponse response;
    while (stream->Read(&response)) {
    }
    return rpc::FromGrpc(stream->Finish());
  }

  void Expect(const absl::Status& status, Code code,
              const std::string& reason) {
    SCOPED_TRACE(status.ToString());
    EXPECT_EQ(status.code(), code);
    const std::optional<ErrorReason> found = GetReason(status);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->reason, reason);
    EXPECT_NE(reason, absl::StatusCodeToString(code));
    EXPECT_GT(status.message().size(), 20u);
    EXPECT_NE(contract_.find(reason), std::string::npos)
        << "proto/ERRORS.md does not tell of it";
  }

  const std::string contract_;
  std::unique_ptr<TestCluster> cluster_;
  std::unique_ptr<v1::ParameterService::Stub> stub_;
  std::vector<float> elements_;
  int64_t seq_ = 0;
};

constexpr auto kUnchanged = [](auto&) {};

TEST_F(RefusalsTest, OfAPushsHeader) {
  const auto with = [this](const std::function<void(v1::PushHeader&)>& change) {
    return Push({Header(change)});
  };
  const auto info = [&](const std::function<void(v1::ContributionInfo&)>& f) {
    return with([&](v1::PushHeader& h) { f(*h.mutable_info()); });
  };
  Expect(Push({}), Code::kInvalidArgument, "WRONG_ORDER");
  Expect(Push({Chunk(kUnchanged)}), Code::kInvalidArgument, "WRONG_ORDER");
  Expect(with([](auto& h) { h.set_run_id("../x"); }), Code::kInvalidArgument,
         "INVALID_FIELDS");
  Expect(with([](auto& h) { h.set_island_id(""); }), Code::kInvalidArgument,
         "INVALID_FIELDS");
  Expect(with([](auto& h) { h.set_run_id("other"); }), Code::kNotFound,
         "SHARD_NOT_HERE");
  Expect(with([](auto& h) { h.set_layout_fingerprint(1); }), Code::kAborted,
         "OTHER_LAYOUT");
  Expect(with([](auto& h) { h.set_shard(1); }), Code::kAborted, "OTHER_SHARD");
  Expect(with([](auto& h) { h.set_placement_epoch(0); }), Code::kAborted,
         "STALE_PLACEMENT_EPOCH");
  Expect(with([](auto& h) { h.set_island_epoch(0); }), Code::kAborted,
         "STALE_ISLAND_EPOCH");
  Expect(with([](auto& h) { h.set_island_epoch(99); }), Code::kUnavailable,
         "PLAN_BEHIND");
  Expect(info([](auto& i) { i.mutable_key()->set_run_epoch(0); }),
         Code::kAborted, "STALE_RUN_EPOCH");
  Expect(info([](auto& i) { i.mutable_key()->set_slot(99); }),
         Code::kFailedPrecondition, "NOT_A_MEMBER");
  Expect(info([](auto& i) { i.mutable_key()->set_fragment(7); }),
         Code::kInvalidArgument, "NO_SUCH_FRAGMENT");
  Expect(info([](auto& i) { i.mutable_key()->set_seq(0); }),
         Code::kInvalidArgument, "INVALID_FIELDS");
  Expect(info([](auto& i) { i.set_step_count(0); }), Code::kInvalidArgument,
         "INVALID_FIELDS");
  Expect(info([](auto& i) { i.set_codec(v1::CODEC_UNSPECIFIED); }),
         Code::kInvalidArgument, "OTHER_CODEC");
  Expect(info([](auto& i) { i.set_anchor_version(5); }), Code::kUnavailable,
         "PLAN_BEHIND");
  Expect(Push({Header()}, std::string(32, 'x')), Code::kUnauthenticated,
         "WRONG_SESSION");
  PushRequest header = Header();
  Push({header}).IgnoreError();
  header.mutable_header()->mutable_info()->mutable_digest()->set_low(1);
  Expect(Push({header}), Code::kAborted, "KEY_IS_BOUND");
}

TEST_F(RefusalsTest, OfAPushsChunks) {
  const auto with = [this](const std::function<void(v1::Chunk&)>& change) {
    Begin(SmallRun());  // A refusal is final.
    const PushRequest header = Header();
    return Push({header, Chunk(change)});
  };
  Expect(with(kUnchanged), Code::kUnavailable, "BLOCKS_MISSING");
  Expect(with([](auto& c) { c.mutable_key()->set_seq(99); }),
         Code::kInvalidArgument, "WRONG_KEY");
  Expect(with([](auto& c) { c.mutable_payload()->pop_back(); }),
         Code::kInvalidArgument, "CHUNK_DOES_NOT_FIT");
  Expect(with([](auto& c) { c.set_first_block(70); }), Code::kInvalidArgument,
         "CHUNK_DOES_NOT_FIT");
  Expect(with([](auto& c) { c.set_codec(v1::CODEC_UNSPECIFIED); }),
         Code::kInvalidArgument, "CHUNK_DOES_NOT_FIT");
  Expect(with([](auto& c) {
           const float nan = std::numeric_limits<float>::quiet_NaN();
           c.mutable_payload()->replace(
               0, 4, reinterpret_cast<const char*>(&nan), 4);
         }),
         Code::kInvalidArgument, "NOT_FINITE");
  seq_ = 0;
  Expect(Push({Header()}), Code::kInvalidArgument, "CONTRIBUTION_REFUSED");

  const PushRequest header = Header();
  Expect(Push({header, header}), Code::kInvalidArgument, "WRONG_ORDER");
  PushRequest damaged = Chunk(kUnchanged);
  (*damaged.mutable_chunk()->mutable_payload())[3] ^= 1;
  Expect(Push({header, damaged}), Code::kDataLoss, "CHUNK_DAMAGED");
}

TEST_F(RefusalsTest, OfWhatHasNoRoom) {
  for (int i = 0; i < 4; ++i) Push({Header()}).IgnoreError();
  absl::Status status = Push({Header()});
  Expect(status, Code::kResourceExhausted, "TOO_MANY_CONTRIBUTIONS");
  EXPECT_TRUE(GetRetryDelay(status).has_value());

  Begin(SmallRun(), /*started=*/true, /*has_room=*/false);
  // UNAVAILABLE until the plan arrives, before any key is bound.
  do {
    status = Push({Header()});
  } while (absl::IsUnavailable(status));
  Expect(status, Code::kResourceExhausted, "DISK_FULL");
  EXPECT_TRUE(GetRetryDelay(status).has_value());
}

TEST_F(RefusalsTest, OfALargeNorm) {
  v1::Run run = SmallRun();
  run.mutable_spec()->mutable_outer()->set_contribution_norm_max(1e-6);
  Begin(run);
  const PushRequest header = Header();
  std::vector<PushRequest> requests = {header};
  const int64_t block_count = cluster_->layout().fragment_block_count(0);
  for (int64_t b = 0; b < block_count; ++b) {
    const IndexRange elements =
        cluster_->layout().BlockElements(0, {b, b + 1});
    requests.push_back(Chunk([&](v1::Chunk& chunk) {
      chunk.set_first_block(b);
      chunk.set_block_count(1);
      chunk.set_payload(elements_.data() + elements.begin,
                        static_cast<size_t>(elements.size()) * sizeof(float));
    }));
  }
  Expect(Push(requests), Code::kInvalidArgument, "NORM_TOO_LARGE");
}

TEST_F(RefusalsTest, OfAPull) {
  Expect(Pull([](auto& r) { r.set_run_id("other"); }), Code::kNotFound,
         "SHARD_NOT_HERE");
  Expect(Pull([](auto& r) { r.set_layout_fingerprint(1); }), Code::kAborted,
         "OTHER_LAYOUT");
  Expect(Pull([](auto& r) { r.set_shard(3); }), Code::kAborted, "OTHER_SHARD");
  Expect(Pull([](auto& r) { r.set_fragment(9); }), Code::kInvalidArgument,
         "NO_SUCH_FRAGMENT");
  Expect(Pull([](auto& r) { r.set_version(-2); }), Code::kInvalidArgument,
         "INVALID_FIELDS");
  Expect(Pull([](auto& r) { r.set_version(9); }), Code::kFailedPrecondition,
         "VERSION_NOT_HERE");
  Expect(Pull([](auto& r) { r.mutable_range()->set_end(1 << 20); }),
         Code::kInvalidArgument, "INVALID_FIELDS");
  for (int64_t v = 0; v < 3; ++v) ASSERT_TRUE(cluster_->Round(v, 1).ok());
  Expect(Pull([](auto& r) { r.set_version(0); }), Code::kOutOfRange,
         "VERSION_RELEASED");
}

TEST_F(RefusalsTest, OfAnImport) {
  Expect(Import({ImportHeader()}), Code::kInvalidArgument,
         "RUN_DOES_NOT_IMPORT");
  v1::Run run = SmallRun();
  run.mutable_spec()->mutable_init()->set_import(true);
  Begin(run, /*started=*/false);
  Expect(Pull(kUnchanged), Code::kUnavailable, "NOT_STARTED");
  Expect(Import({}), Code::kInvalidArgument, "WRONG_ORDER");
  Expect(Import({ImportHeader(), ImportChunk()}), Code::kUnavailable,
         "BLOCKS_MISSING");
  ImportRequest other = ImportHeader();
  other.mutable_header()->mutable_digest()->set_low(2);
  Expect(Import({other}), Code::kAlreadyExists, "OTHER_MODEL");
  other = ImportHeader();
  other.mutable_header()->set_fragment(5);
  Expect(Import({other}), Code::kInvalidArgument, "NO_SUCH_FRAGMENT");
}

}  // namespace
}  // namespace atl::server
