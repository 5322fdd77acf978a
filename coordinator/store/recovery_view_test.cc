#include "coordinator/store/recovery_view.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/codec/crc32c.h"
#include "coordinator/store/sealed_value.h"
#include "gtest/gtest.h"
#include "rocksdb/write_batch.h"

namespace atl::coordinator {
namespace {

using Option = rocksdb::WalFilter::WalProcessingOption;

rocksdb::WriteBatch MakeBatch(int64_t index) {
  rocksdb::WriteBatch batch;
  batch.Put("log/a/0", "x");
  batch.DeleteRange("log/b/", "log/b0");
  batch.Delete("snapshot/b");
  batch.Put(kIndexKey, Seal(std::to_string(index)));
  return batch;
}

Option Pass(IndexFilter& filter, const rocksdb::WriteBatch& batch) {
  rocksdb::WriteBatch unused;
  bool changed = false;
  const Option option =
      filter.LogRecordFound(1, "1.log", batch, &unused, &changed);
  EXPECT_FALSE(changed);
  return option;
}

TEST(IndexFilterTest, FindsTheLastIndexBeforeAGap) {
  IndexFilter filter(std::nullopt);
  EXPECT_FALSE(filter.has_batches());
  EXPECT_EQ(filter.FindLast(7), 7);
  for (const int64_t index : {5, 6, 7, 9, 10}) {
    EXPECT_EQ(Pass(filter, MakeBatch(index)), Option::kIgnoreCurrentRecord);
  }
  EXPECT_TRUE(filter.has_batches());
  EXPECT_EQ(filter.FindLast(3), 3);
  EXPECT_EQ(filter.FindLast(4), 7);
  EXPECT_EQ(filter.FindLast(7), 7);
  EXPECT_EQ(filter.FindLast(8), 10);
  EXPECT_EQ(filter.FindLast(20), 20);
}

TEST(IndexFilterTest, StopsBehindTheLastIndex) {
  IndexFilter filter(6);
  rocksdb::WriteBatch first;
  first.Put(kFormatKey, "3");
  EXPECT_EQ(Pass(filter, first), Option::kContinueProcessing);
  EXPECT_EQ(Pass(filter, MakeBatch(6)), Option::kContinueProcessing);
  EXPECT_EQ(Pass(filter, MakeBatch(8)), Option::kStopReplay);
}

TEST(IndexFilterTest, FindsTheFormat) {
  IndexFilter filter(std::nullopt);
  Pass(filter, MakeBatch(1));
  EXPECT_EQ(filter.format(), std::nullopt);
  rocksdb::WriteBatch batch;
  batch.Put(kFormatKey, "3");
  Pass(filter, batch);
  EXPECT_EQ(filter.format(), "3");
}

void AddRecord(std::string& file, int type, const std::string& payload) {
  const std::string typed = std::string(1, static_cast<char>(type)) + payload;
  const uint32_t crc = codec::Crc32c(typed);
  const uint32_t masked = ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
  char header[6];
  std::memcpy(header, &masked, 4);
  header[4] = static_cast<char>(payload.size() & 0xff);
  header[5] = static_cast<char>(payload.size() >> 8);
  file.append(header, 6);
  file += typed;
}

TEST(MeasureWholeRecordsTest, EndsBeforeTheFirstRecordThatIsNotWhole) {
  std::string file;
  std::vector<size_t> ends = {0};
  AddRecord(file, 1, "one");
  ends.push_back(file.size());
  // One record in three parts, which fill two blocks of 32 KiB up to 3 bytes.
  AddRecord(file, 2, std::string(32768 - file.size() - 7, 'a'));
  AddRecord(file, 3, std::string(32768 - 7 - 3, 'b'));
  file += std::string(3, '\0');
  AddRecord(file, 4, "c");
  ends.push_back(file.size());
  AddRecord(file, 1, "");
  ends.push_back(file.size());
  EXPECT_EQ(MeasureWholeRecords(file), static_cast<int64_t>(file.size()));
  for (size_t size = 0; size < file.size();
       size += size + 200 < file.size() && size > 200 ? 97 : 1) {
    const int64_t end = *--std::upper_bound(ends.begin(), ends.end(), size);
    EXPECT_EQ(MeasureWholeRecords(file.substr(0, size)), end) << size;
    // The rest reads as zeros, or a byte is wrong.
    std::string torn = file.substr(0, size) + std::string(5000, '\0');
    EXPECT_EQ(MeasureWholeRecords(torn), end) << size;
    torn = file;
    torn[size] ^= 1;
    EXPECT_LE(MeasureWholeRecords(torn), static_cast<int64_t>(file.size()))
        << size;
  }
  // A page of zeros in the middle hides what is behind it.
  std::string holed = file;
  holed.replace(32768, 4096, 4096, '\0');
  EXPECT_EQ(MeasureWholeRecords(holed), static_cast<int64_t>(ends[1]));
}

}  // namespace
}  // namespace atl::coordinator
