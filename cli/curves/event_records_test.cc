#include "cli/curves/event_records.h"

#include <cstring>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

using ::testing::DoubleEq;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// CRC-32C a bit at a time, apart from base/codec.
uint32_t PlainCrc(absl::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int i = 0; i < 8; ++i) crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0);
  }
  return ~crc;
}

template <typename T>
T Load(absl::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

// Expects one record, and returns its event's bytes. Written from TensorFlow's
// description, not from the code under test.
std::string Unframe(absl::string_view record) {
  const auto masked = [](absl::string_view bytes) {
    const uint32_t crc = PlainCrc(bytes);
    return static_cast<uint32_t>(((crc >> 15) | (crc << 17)) + 0xa282ead8u);
  };
  const auto size = Load<uint64_t>(record, 0);
  EXPECT_EQ(record.size(), size + 16);
  EXPECT_EQ(Load<uint32_t>(record, 8), masked(record.substr(0, 8)));
  EXPECT_EQ(Load<uint32_t>(record, 12 + size), masked(record.substr(12, size)));
  return std::string(record.substr(12, size));
}

const CurvePoint kPoint = {"loss", 300, absl::FromUnixSeconds(1000), 1.5};

TEST(EventRecordsTest, TheFirstRecordIsTheOneOfTensorFlowsFiles) {
  const std::string record = EventFileHeader(absl::FromUnixSeconds(7));
  // Every file of TensorFlow begins with a length of 24 and its CRC.
  EXPECT_EQ(record.substr(0, 12),
            absl::string_view("\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22", 12));
  const std::string event = Unframe(record);
  EXPECT_EQ(event[0], 1 << 3 | 1);  // wall_time = 1, fixed64.
  EXPECT_THAT(Load<double>(event, 1), DoubleEq(7));
  EXPECT_EQ(event.substr(9),
            "\x1a\x0d"
            "brain.Event:2");  // Field 3.
}

TEST(EventRecordsTest, APointIsAnEventWithTensorFlowsFieldNumbers) {
  const std::string event = Unframe(EncodePoint(kPoint));
  EXPECT_EQ(event[0], 1 << 3 | 1);
  EXPECT_THAT(Load<double>(event, 1), DoubleEq(1000));
  // step = 2, varint 300; summary = 5, 13 bytes; value = 1, 11 bytes;
  // tag = 1, "loss"; simple_value = 2, fixed32.
  EXPECT_EQ(event.substr(9, 13),
            absl::string_view("\x10\xac\x02\x2a\x0d\x0a\x0b\x0a\x04loss", 13));
  EXPECT_EQ(event[22], 2 << 3 | 5);
  EXPECT_EQ(Load<float>(event, 23), 1.5f);
  EXPECT_THAT(event, SizeIs(27));
}

TEST(EventRecordsTest, ReadsWholeRecordsUpToATornOne) {
  const std::string header = EventFileHeader(absl::UnixEpoch());
  const std::string bytes = header + EncodePoint(kPoint) + EncodePoint(kPoint);
  const EventRecords all = ReadEventRecords(bytes);
  ASSERT_THAT(all.events, SizeIs(3));
  EXPECT_EQ(all.size_bytes, static_cast<int64_t>(bytes.size()));
  EXPECT_EQ(all.events[1].summary().value(0).tag(), "loss");
  for (size_t cut = 1; cut < kPoint.tag.size() + 30; ++cut) {
    const EventRecords records = ReadEventRecords(
        absl::string_view(bytes).substr(0, bytes.size() - cut));
    EXPECT_THAT(records.events, SizeIs(2)) << cut;
  }
}

TEST(EventRecordsTest, ADamagedByteEndsWhatIsRead) {
  const std::string header = EventFileHeader(absl::UnixEpoch());
  const std::string bytes = header + EncodePoint(kPoint);
  for (size_t at = header.size(); at < bytes.size(); ++at) {
    std::string damaged = bytes;
    damaged[at] ^= 0x10;
    const EventRecords records = ReadEventRecords(damaged);
    EXPECT_THAT(records.events, SizeIs(1)) << at;
    EXPECT_EQ(records.size_bytes, static_cast<int64_t>(header.size())) << at;
  }
  EXPECT_THAT(ReadEventRecords("").events, IsEmpty());
}

}  // namespace
}  // namespace atl::cli
