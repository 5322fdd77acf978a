#include "base/rpc/chunk_codec.h"

#include <algorithm>
#include <cstring>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "base/codec/crc32c.h"
#include "gtest/gtest.h"

namespace atl::rpc {
namespace {

using Push = v1::PushOuterGradientRequest;
using Pull = v1::PullParametersResponse;

class ChunkCodecTest : public ::testing::Test {
 protected:
  ChunkCodecTest() : seed_(std::random_device{}()), random_(seed_) {
    std::cout << "seed " << seed_ << std::endl;
  }

  int64_t Number() {
    switch (random_() % 4) {
      case 0:
        return 0;
      case 1:
        return static_cast<int64_t>(random_() % 300);
      case 2:
        return -static_cast<int64_t>(random_() % 300);
      default:
        return static_cast<int64_t>((uint64_t{random_()} << 32) | random_());
    }
  }

  std::string Bytes(size_t count) {
    std::string bytes(count, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random_());
    return bytes;
  }

  ChunkHeader Header() {
    ChunkHeader header;
    header.has_key = random_() % 2 == 0;
    if (header.has_key) {
      header.run_epoch = Number();
      header.fragment = static_cast<int32_t>(Number());
      header.slot = static_cast<int32_t>(Number());
      header.seq = Number();
    }
    header.codec = static_cast<int32_t>(Number());
    header.first_block = Number();
    header.block_count = static_cast<int32_t>(Number());
    header.crc32c = random_() % 5 == 0 ? 0 : random_();
    return header;
  }

  v1::Chunk ToProto(const ChunkHeader& header, const std::string& payload) {
    v1::Chunk chunk;
    if (header.has_key) {
      chunk.mutable_key()->set_run_epoch(header.run_epoch);
      chunk.mutable_key()->set_fragment(header.fragment);
      chunk.mutable_key()->set_slot(header.slot);
      chunk.mutable_key()->set_seq(header.seq);
    }
    chunk.set_codec(static_cast<v1::Codec>(header.codec));
    chunk.set_first_block(header.first_block);
    chunk.set_block_count(header.block_count);
    chunk.set_crc32c(header.crc32c);
    chunk.set_payload(payload);
    return chunk;
  }

  // `bytes` in slices cut at random places, some of them empty.
  grpc::ByteBuffer Slices(const std::string& bytes) {
    std::vector<grpc::Slice> slices;
    size_t begin = 0;
    while (begin < bytes.size()) {
      size_t count = random_() % 4 == 0 ? random_() % 3 : random_() % 5000;
      count = std::min(count, bytes.size() - begin);
      slices.emplace_back(bytes.data() + begin, count);
      begin += count;
    }
    if (slices.empty()) slices.emplace_back();
    return grpc::ByteBuffer(slices.data(), slices.size());
  }

  const uint32_t seed_;
  std::mt19937 random_;
};

std::string Flat(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

std::string ReadPayload(const ReceivedChunk& chunk) {
  std::string payload(chunk.payload_bytes, '\0');
  chunk.CopyPayload(payload.data());
  return payload;
}

// --- Hand-made bytes are protobuf's ------------------------------------------

TEST_F(ChunkCodecTest, WritesTheBytesThatProtobufWrites) {
  for (int i = 0; i < 2000; ++i) {
    const ChunkHeader header = Header();
    const std::string payload =
        Bytes(random_() % 3 == 0 ? 0 : random_() % 9000);
    Push push;
    *push.mutable_chunk() = ToProto(header, payload);
    v1::ImportParametersRequest import;
    *import.mutable_chunk() = push.chunk();
    Pull pull;
    *pull.mutable_chunk() = push.chunk();
    const std::string ours = Flat(EncodeChunk(header, grpc::Slice(payload)));
    Push sent;
    ASSERT_TRUE(sent.ParseFromString(ours));
    const std::string padding = sent.chunk().padding();
    push.mutable_chunk()->set_padding(padding);
    import.mutable_chunk()->set_padding(padding);
    pull.mutable_chunk()->set_padding(padding);
    ASSERT_EQ(ours, push.SerializeAsString());
    ASSERT_EQ(ours, import.SerializeAsString());
    ASSERT_EQ(ours, pull.SerializeAsString());
  }
}

TEST_F(ChunkCodecTest, ReadsWhatProtobufWritesInAnySlicing) {
  for (int i = 0; i < 1000; ++i) {
    const ChunkHeader header = Header();
    const std::string payload = Bytes(random_() % 20000);
    Push push;
    *push.mutable_chunk() = ToProto(header, payload);
    ReceivedChunk chunk;
    ASSERT_TRUE(DecodePlainChunk(Slices(push.SerializeAsString()), &chunk));
    ASSERT_EQ(chunk.header, header);
    ASSERT_EQ(ReadPayload(chunk), payload);
    std::string read(payload.size(), '\0');
    PayloadReader reader(chunk);
    for (size_t at = 0; at < read.size();) {
      const size_t size =
          std::min(read.size() - at, random_() % 5000 + size_t{1});
      reader.Read(size, read.data() + at);
      at += size;
    }
    ASSERT_EQ(read, payload);
  }
}

TEST_F(ChunkCodecTest, BorrowsThePayloadAndSaysWhenItIsReleased) {
  const std::string payload = Bytes(1 << 20);
  int released_count = 0;
  {
    const grpc::ByteBuffer message = EncodeChunk(
        Header(), BorrowSlice(
                      payload, [](void* count) { ++*static_cast<int*>(count); },
                      &released_count));
    ReceivedChunk chunk;
    ASSERT_TRUE(DecodePlainChunk(message, &chunk));
    ASSERT_EQ(chunk.payload.size(), 1);
    EXPECT_EQ(static_cast<const void*>(chunk.payload[0].data()),
              static_cast<const void*>(payload.data()));
    EXPECT_EQ(released_count, 0);
  }
  EXPECT_EQ(released_count, 1);
}

// The distance, modulo 4096, from the payload to a copy of it. The copy of the
// message starts a page after headers of 9 and 5 bytes.
size_t CopyDistance(const grpc::ByteBuffer& message) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(message.Dump(&slices).ok());
  const auto address = reinterpret_cast<uintptr_t>(slices.back().begin());
  return (9 + 5 + message.Length() - slices.back().size() - address) % 4096;
}

TEST_F(ChunkCodecTest, MovesAPayloadThatWouldBeCopiedSlowly) {
  const std::string memory = Bytes(3 * 4096);
  int padded_count = 0;
  for (size_t at = 0; at < 4096; ++at) {
    const std::string payload = memory.substr(at, 4096 + random_() % 4096);
    const ChunkHeader header = Header();
    const grpc::ByteBuffer message = EncodeChunk(
        header, BorrowSlice({memory.data() + at, payload.size()},
                            [](void*) {}, nullptr));
    const size_t distance = CopyDistance(message);
    // Seventeen frames have sixteen more headers.
    EXPECT_GE(distance, 32);
    EXPECT_LE(distance, 4096 - 16 * 9);
    ReceivedChunk chunk;
    ASSERT_TRUE(DecodePlainChunk(message, &chunk));
    EXPECT_EQ(chunk.header, header);
    EXPECT_EQ(ReadPayload(chunk), payload);
    Push push;
    ASSERT_TRUE(DecodeMessage(message, &push));
    EXPECT_LE(push.chunk().padding().size(), 256);
    if (!push.chunk().padding().empty()) ++padded_count;
  }
  // About 176 addresses need padding.
  EXPECT_GT(padded_count, 100);
  EXPECT_LT(padded_count, 300);
}

TEST_F(ChunkCodecTest, LeavesHeadersToProtobuf) {
  Push push;
  push.mutable_header()->set_run_id("run-1");
  push.mutable_header()->mutable_info()->mutable_key()->set_seq(7);
  const auto message = DecodeBulk<Push>(EncodeMessage(push));
  ASSERT_TRUE(message.ok());
  EXPECT_FALSE(message->is_chunk);
  EXPECT_EQ(message->message.SerializeAsString(), push.SerializeAsString());
}

// --- The checksum ------------------------------------------------------------

TEST_F(ChunkCodecTest, TakesTheChecksumOverSevenNumbersAndThePayload) {
  ChunkHeader header = Header();
  const std::string payload = Bytes(5000);
  std::string bytes;
  for (const int64_t number :
       {header.run_epoch, int64_t{header.fragment}, int64_t{header.slot},
        header.seq, int64_t{header.codec}, header.first_block,
        int64_t{header.block_count}}) {
    char little_endian[8];
    std::memcpy(little_endian, &number, 8);  // This machine is little-endian.
    bytes.append(little_endian, 8);
  }
  bytes += payload;
  const uint32_t plain = codec::ExtendCrc32cPlain(0, bytes);
  const absl::string_view pieces[] = {
      absl::string_view(payload).substr(0, 1234),
      absl::string_view(payload).substr(1234)};
  EXPECT_EQ(ChunkCrc32c(header, pieces), plain);
}

TEST_F(ChunkCodecTest, NoticesAnyChangedBitOfWhatTheChecksumCovers) {
  const std::string payload = Bytes(300);
  ChunkHeader header = Header();
  header.has_key = true;
  header.crc32c = ChunkCrc32c(header, {absl::string_view(payload)});
  for (int i = 0; i < 200; ++i) {
    ReceivedChunk chunk;
    ASSERT_TRUE(
        DecodePlainChunk(EncodeChunk(header, grpc::Slice(payload)), &chunk));
    ASSERT_TRUE(CheckCrc32c(chunk).ok());
    std::string changed = payload;
    switch (random_() % 4) {
      case 0:
        chunk.header.seq ^= int64_t{1} << (random_() % 63);
        break;
      case 1:
        chunk.header.first_block ^= int64_t{1} << (random_() % 63);
        break;
      case 2:
        chunk.header.slot ^= 1 << (random_() % 31);
        break;
      default:
        changed[random_() % changed.size()] ^= 1 << (random_() % 8);
        chunk.payload = {absl::string_view(changed)};
    }
    EXPECT_EQ(CheckCrc32c(chunk).code(), absl::StatusCode::kDataLoss);
  }
}

// --- Any bytes: as protobuf reads them ---------------------------------------

// DecodeBulk must accept the same bytes as protobuf, with the same meaning.
template <typename Message>
void ExpectSameAsProtobuf(const std::string& bytes,
                          const grpc::ByteBuffer& buffer) {
  Message expected;
  const bool parses = expected.ParseFromString(bytes);
  const auto message = DecodeBulk<Message>(buffer);
  ASSERT_EQ(message.ok(), parses);
  if (!parses) {
    ASSERT_EQ(message.status().code(), absl::StatusCode::kInvalidArgument);
    return;
  }
  ASSERT_EQ(message->is_chunk, expected.has_chunk());
  if (!expected.has_chunk()) {
    ASSERT_EQ(message->message.SerializeAsString(),
              expected.SerializeAsString());
    return;
  }
  const ReceivedChunk as_expected = FromProto(expected.chunk());
  ASSERT_EQ(message->chunk.header, as_expected.header);
  ASSERT_EQ(ReadPayload(message->chunk), expected.chunk().payload());
}

TEST_F(ChunkCodecTest, MeansWhatProtobufMeansForFieldsInAnyOrder) {
  const auto field = [this](int number, int wire_type) {
    std::string bytes(1, static_cast<char>(number << 3 | wire_type));
    switch (wire_type) {
      case 0:
        do {
          bytes.push_back(static_cast<char>(random_() | 0x80));
        } while (bytes.size() < 9 && random_() % 2 == 0);
        bytes.push_back(static_cast<char>(random_() % 2));
        break;
      case 1:
        bytes += Bytes(8);
        break;
      case 5:
        bytes += Bytes(4);
        break;
      default: {
        const std::string content = Bytes(random_() % 40);
        bytes.push_back(static_cast<char>(content.size()));
        bytes += content;
      }
    }
    return bytes;
  };
  int chunk_count = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string chunk;
    const int field_count = static_cast<int>(random_() % 7);
    for (int f = 0; f < field_count; ++f) {
      // Mostly a chunk's fields with their types, sometimes others.
      static constexpr int kKnown[][2] = {
          {2, 0}, {3, 0}, {4, 0}, {5, 5}, {6, 2}, {15, 2}};
      if (random_() % 8 != 0) {
        const auto& known = kKnown[random_() % 6];
        chunk += field(known[0], known[1]);
      } else if (random_() % 2 == 0) {
        v1::ContributionKey key;
        key.set_run_epoch(Number());
        key.set_slot(static_cast<int32_t>(Number()));
        const std::string content = key.SerializeAsString();
        chunk.push_back(static_cast<char>(1 << 3 | 2));
        chunk.push_back(static_cast<char>(content.size()));
        chunk += content;
      } else {
        static constexpr int kTypes[] = {0, 1, 2, 5};
        chunk +=
            field(1 + static_cast<int>(random_() % 15), kTypes[random_() % 4]);
      }
    }
    std::string bytes;
    bytes.push_back(static_cast<char>(15 << 3 | 2));
    if (chunk.size() >= 128)
      bytes.push_back(static_cast<char>(chunk.size() | 0x80));
    bytes.push_back(static_cast<char>(chunk.size() >= 128 ? chunk.size() >> 7
                                                          : chunk.size()));
    bytes += chunk;
    if (random_() % 5 == 0) bytes += bytes;  // Merged.
    ReceivedChunk plain;
    if (DecodePlainChunk(Slices(bytes), &plain)) ++chunk_count;
    ExpectSameAsProtobuf<Push>(bytes, Slices(bytes));
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(chunk_count, 1000) << "the fast path was hardly tried";
}

TEST_F(ChunkCodecTest, AgreesWithProtobufOnDamagedMessages) {
  int refused_count = 0;
  for (int i = 0; i < 20000; ++i) {
    Push push;
    *push.mutable_chunk() = ToProto(Header(), Bytes(random_() % 60));
    if (random_() % 6 == 0) push.mutable_header()->set_run_id("run");
    std::string bytes = push.SerializeAsString();
    const int damage_count = static_cast<int>(random_() % 4);
    for (int d = 0; d < damage_count && !bytes.empty(); ++d) {
      const size_t at = random_() % bytes.size();
      switch (random_() % 4) {
        case 0:
          bytes[at] = static_cast<char>(random_());
          break;
        case 1:
          bytes.erase(at, 1 + random_() % 4);
          break;
        case 2:
          bytes.insert(at, Bytes(1 + random_() % 4));
          break;
        default:
          bytes.resize(at);
      }
    }
    if (!Push().ParseFromString(bytes)) ++refused_count;
    ExpectSameAsProtobuf<Push>(bytes, Slices(bytes));
    ExpectSameAsProtobuf<Pull>(bytes, Slices(bytes));
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(refused_count, 100) << "hardly anything was damaged";
}

TEST_F(ChunkCodecTest, RefusesLengthsPastTheEnd) {
  const std::string bytes = {static_cast<char>(0x7A),
                             5,
                             0x7A,
                             static_cast<char>(0xFF),
                             static_cast<char>(0xFF),
                             static_cast<char>(0xFF),
                             0x7F};
  ReceivedChunk chunk;
  EXPECT_FALSE(DecodePlainChunk(Slices(bytes), &chunk));
  EXPECT_FALSE(DecodeBulk<Push>(Slices(bytes)).ok());
}

}  // namespace
}  // namespace atl::rpc
