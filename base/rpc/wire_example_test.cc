// Computes the worked example of proto/DESIGN.md, so that authors of clients
// can trust its bytes.

#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/layout/digest.h"
#include "base/layout/layout.h"
#include "base/rpc/chunk_codec.h"
#include "gtest/gtest.h"

namespace atl::rpc {
namespace {

v1::Layout ExampleLayout() {
  v1::Layout layout;
  layout.set_fragment_count(1);
  v1::TensorSpec* norm = layout.add_tensors();
  norm->set_name("model.norm.weight");
  norm->add_shape(2);
  norm->set_tensor_class(v1::TENSOR_CLASS_VECTOR);
  v1::TensorSpec* head = layout.add_tensors();
  head->set_name("lm_head.weight");
  head->add_shape(3);
  head->add_shape(1);
  head->set_tensor_class(v1::TENSOR_CLASS_EMBEDDING);
  for (v1::TensorSpec& tensor : *layout.mutable_tensors()) {
    tensor.set_dtype(v1::DATA_TYPE_F32);
    tensor.mutable_init()->set_kind(v1::INIT_KIND_CONSTANT);
  }
  return layout;
}

// Two blocks: [1, -2] and [0.5, 0, 3].
const std::vector<float> kElements = {1.0f, -2.0f, 0.5f, 0.0f, 3.0f};

absl::string_view Payload() {
  return {reinterpret_cast<const char*>(kElements.data()),
          kElements.size() * sizeof(float)};
}

class WireExampleTest : public ::testing::Test {
 protected:
  WireExampleTest() : layout_(*RunLayout::Create(ExampleLayout())) {
    std::ifstream file("proto/DESIGN.md");
    std::stringstream text;
    text << file.rdbuf();
    document_ = text.str();
  }

  void ExpectInDocument(const std::string& what, const std::string& text) {
    EXPECT_NE(document_.find(text), std::string::npos)
        << what << " is not in proto/DESIGN.md: " << text;
  }

  const RunLayout layout_;
  std::string document_;
};

TEST_F(WireExampleTest, HasTheFingerprintOfTheDocument) {
  ExpectInDocument("fingerprint",
                   absl::StrFormat("0x%016x", layout_.fingerprint()));
}

TEST_F(WireExampleTest, HasTheDigestsOfTheDocument) {
  ExpectInDocument(
      "block 0",
      BlockDigest(0, absl::MakeSpan(kElements).subspan(0, 2)).ToHex());
  ExpectInDocument(
      "block 1",
      BlockDigest(1, absl::MakeSpan(kElements).subspan(2, 3)).ToHex());
  ExpectInDocument("fragment",
                   RangeDigest(layout_, 0, {0, 2}, kElements).ToHex());
  ExpectInDocument("contribution", ContributionDigest(Payload()).ToHex());
  ExpectInDocument("parameters_sha256", ParametersSha256(layout_, kElements));
}

TEST_F(WireExampleTest, HasTheChunkOfTheDocument) {
  ChunkHeader header;
  header.has_key = true;
  header.run_epoch = 1;
  header.slot = 2;
  header.seq = 300;
  header.codec = v1::CODEC_F32;
  header.block_count = 2;
  header.crc32c = ChunkCrc32c(header, {Payload()});
  ExpectInDocument("checksum", absl::StrFormat("0x%08x", header.crc32c));
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(
      EncodeChunk(header, grpc::Slice(Payload().data(), Payload().size()))
          .Dump(&slices)
          .ok());
  std::string hex;
  for (const grpc::Slice& slice : slices) {
    for (const uint8_t* p = slice.begin(); p != slice.end(); ++p) {
      absl::StrAppend(&hex, hex.empty() ? "" : " ",
                      absl::StrFormat("%02x", *p));
    }
  }
  // As the document breaks lines: the bytes before the payload, then the
  // payload.
  const size_t payload_at = hex.size() - (Payload().size() * 3 - 1);
  ExpectInDocument("start of the message", hex.substr(0, payload_at - 1));
  ExpectInDocument("payload", hex.substr(payload_at));
}

}  // namespace
}  // namespace atl::rpc
