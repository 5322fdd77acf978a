#include "server/store/records/record_frame.h"

#include <string>

#include "gtest/gtest.h"

namespace atl::server {
namespace {

std::string Frame(uint64_t seq, uint64_t file_id, uint64_t synced_seq,
                  const std::string& payload) {
  RecordFrame frame;
  frame.flags =
      seq == 1 ? RecordFrame::kSnapshot | RecordFrame::kSnapshotEnd : 0;
  frame.seq = seq;
  frame.file_id = file_id;
  frame.synced_seq = synced_seq;
  frame.payload = payload;
  return EncodeFrame(frame);
}

TEST(RecordFrameTest, ABatchComesBack) {
  RecordBatch batch;
  batch.Put("name", std::string("\0value", 6));
  batch.Delete("gone");
  batch.DeletePrefix("k/");
  batch.Put("", "");
  const auto decoded = DecodeBatch(EncodeBatch(batch));
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(EncodeBatch(*decoded), EncodeBatch(batch));
  ASSERT_EQ(decoded->changes().size(), 4u);
  EXPECT_EQ(decoded->changes()[0].value, std::string("\0value", 6));
  EXPECT_EQ(decoded->changes()[2].kind,
            RecordBatch::Change::Kind::kDeletePrefix);
}

TEST(RecordFrameTest, ACutPayloadDoesNotDecode) {
  RecordBatch batch;
  batch.Put("name", "value");
  const std::string payload = EncodeBatch(batch);
  for (size_t size = 1; size < payload.size(); ++size) {
    EXPECT_FALSE(DecodeBatch(payload.substr(0, size)).has_value()) << size;
  }
}

TEST(RecordFrameTest, NoChangedByteParses) {
  const std::string whole = Frame(7, 3, 5, "payload");
  ASSERT_EQ(whole.size() % 8, 0u);
  const auto parsed = ParseFrame(whole);
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(parsed->seq, 7u);
  EXPECT_EQ(parsed->synced_seq, 5u);
  EXPECT_EQ(parsed->file_id, 3u);
  EXPECT_EQ(parsed->payload, "payload");
  const size_t used = RecordFrame::kHeaderBytes + 7;
  for (size_t i = 0; i < used; ++i) {
    std::string damaged = whole;
    damaged[i] ^= 0x10;
    EXPECT_FALSE(ParseFrame(damaged).has_value()) << i;
    EXPECT_FALSE(ParseFrame(whole.substr(0, i)).has_value()) << i;
  }
}

TEST(RecordFrameTest, AScanEndsAtTheFirstFrameThatDoesNotFollow) {
  const std::string one = Frame(1, 3, 0, "");
  const std::string two = Frame(2, 3, 1, "two");
  EXPECT_EQ(ScanLog(one + two).last_seq(), 2u);
  EXPECT_EQ(ScanLog(one + two + Frame(4, 3, 2, "")).last_seq(), 2u);
  EXPECT_EQ(ScanLog(one + Frame(2, 9, 1, "two")).last_seq(), 1u);
  EXPECT_FALSE(ScanLog(two).has_snapshot);
  EXPECT_FALSE(ScanLog(one + two + std::string(100, '\0')).has_tail);
  EXPECT_TRUE(ScanLog(one + two + "x").has_tail);
}

TEST(RecordFrameTest, AFrameBehindDamageTellsWhatWasSynced) {
  const std::string one = Frame(1, 3, 0, "");
  std::string two = Frame(2, 3, 1, "two");
  two[RecordFrame::kHeaderBytes] ^= 1;
  const LogScan scan = ScanLog(one + two + Frame(3, 3, 2, ""));
  EXPECT_EQ(scan.last_seq(), 1u);
  EXPECT_EQ(scan.synced_seq, 2u);
  // A frame of another file tells nothing.
  EXPECT_EQ(ScanLog(one + two + Frame(3, 9, 2, "")).synced_seq, 0u);
}

}  // namespace
}  // namespace atl::server
