#include "cli/curves/event_writer.h"

#include <cerrno>
#include <cstring>

#include "base/io/files.h"
#include "base/io/posix_file_system.h"
#include "base/io/testing/fake_file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kPath[] = "/d/events.out.tfevents.5.host.u1.atoll";

class EventWriterTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<EventWriter>> Open(const std::string& uid) {
    return EventWriter::Open(files_,
                             {"/d", uid, "host", absl::FromUnixSeconds(5)});
  }

  static CurvePoint Point(const std::string& tag, int64_t step) {
    return {tag, step, absl::FromUnixSeconds(10), 0.5};
  }

  // "tag@step" of each point in the file.
  std::vector<std::string> Points() {
    const std::string bytes = *ReadFile(files_, kPath);
    const EventRecords records = ReadEventRecords(bytes);
    EXPECT_EQ(records.size_bytes, static_cast<int64_t>(bytes.size()));
    std::vector<std::string> points;
    for (const curves::Event& event : records.events) {
      for (const auto& value : event.summary().value()) {
        points.push_back(value.tag() + "@" + std::to_string(event.step()));
      }
    }
    return points;
  }

  FakeFileSystem files_;
};

TEST_F(EventWriterTest, AnotherProcessAppendsOnlyWhatIsNew) {
  auto writer = *Open("u1");
  EXPECT_EQ(writer->path(), kPath);
  ASSERT_TRUE(writer->Add({Point("a", 1), Point("b", 1)}).ok());
  ASSERT_TRUE(writer->Add({Point("a", 1), Point("a", 2)}).ok());
  writer.reset();
  writer = *Open("u1");
  ASSERT_TRUE(writer->Add({Point("a", 2), Point("b", 2)}).ok());
  EXPECT_THAT(Points(), ElementsAre("a@1", "b@1", "a@2", "b@2"));
}

TEST_F(EventWriterTest, ARecordThatADiskFullTornIsCutOffAndWrittenAgain) {
  auto writer = *Open("u1");
  ASSERT_TRUE(writer->Add({Point("a", 1)}).ok());
  files_.AddFault({.call = FakeFileSystem::Fault::Call::kWrite,
                   .path_part = "tfevents",
                   .error_number = ENOSPC,
                   .written_bytes = 20});
  EXPECT_EQ(writer->Add({Point("a", 2)}).code(),
            absl::StatusCode::kResourceExhausted);
  writer.reset();
  writer = *Open("u1");
  ASSERT_TRUE(writer->Add({Point("a", 2)}).ok());
  EXPECT_THAT(Points(), ElementsAre("a@1", "a@2"));
}

TEST_F(EventWriterTest, RefusesADirectoryOfAnotherRun) {
  ASSERT_TRUE(Open("u1").ok());
  const absl::Status status = Open("u2").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("another run"));
}

TEST(EventWriterOnDiskTest, RefusesASecondWriterAtATime) {
  const std::string directory = ::testing::TempDir() + "/events";
  const auto open = [&] {
    return EventWriter::Open(
        PosixFileSystem(), {directory, "u1", "host", absl::FromUnixSeconds(5)});
  };
  auto first = open();
  ASSERT_TRUE(first.ok()) << first.status();
  const absl::Status status = open().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), EndsWith("another process"));
}

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
