#include "coordinator/store/recovery_view.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/codec/crc32c.h"
#include "coordinator/store/sealed_value.h"
#include "rocksdb/write_batch.h"

namespace atl::coordinator {
namespace {

class KeyReader : public rocksdb::WriteBatch::Handler {
 public:
  rocksdb::Status PutCF(uint32_t, const rocksdb::Slice& key,
                        const rocksdb::Slice& value) override {
    absl::string_view bytes;
    int64_t number = 0;
    if (key == kFormatKey) {
      format = value.ToString();
    } else if (key == kIndexKey &&
               Unseal(absl::string_view(value.data(), value.size()), bytes) &&
               absl::SimpleAtoi(bytes, &number)) {
      index = number;
    }
    return rocksdb::Status::OK();
  }
  rocksdb::Status DeleteCF(uint32_t, const rocksdb::Slice&) override {
    return rocksdb::Status::OK();
  }
  rocksdb::Status DeleteRangeCF(uint32_t, const rocksdb::Slice&,
                                const rocksdb::Slice&) override {
    return rocksdb::Status::OK();
  }

  std::optional<std::string> format;
  std::optional<int64_t> index;
};

class CutSequentialFile : public rocksdb::FSSequentialFileOwnerWrapper {
 public:
  CutSequentialFile(std::unique_ptr<rocksdb::FSSequentialFile> file,
                    uint64_t size_bytes)
      : FSSequentialFileOwnerWrapper(std::move(file)), left_(size_bytes) {}

  rocksdb::IOStatus Read(size_t n, const rocksdb::IOOptions& options,
                         rocksdb::Slice* result, char* scratch,
                         rocksdb::IODebugContext* debug) override {
    const rocksdb::IOStatus status = FSSequentialFileOwnerWrapper::Read(
        std::min<uint64_t>(n, left_), options, result, scratch, debug);
    if (status.ok()) left_ -= result->size();
    return status;
  }
  rocksdb::IOStatus Skip(uint64_t n) override {
    n = std::min(n, left_);
    left_ -= n;
    return FSSequentialFileOwnerWrapper::Skip(n);
  }

 private:
  uint64_t left_;
};

class CutFileSystem : public rocksdb::FileSystemWrapper {
 public:
  CutFileSystem(std::shared_ptr<rocksdb::FileSystem> files, std::string name,
                int64_t size_bytes)
      : FileSystemWrapper(std::move(files)),
        path_end_(absl::StrCat("/", name)),
        size_bytes_(static_cast<uint64_t>(size_bytes)) {}

  const char* Name() const override { return "atoll.CutFileSystem"; }

  rocksdb::IOStatus NewSequentialFile(
      const std::string& path, const rocksdb::FileOptions& options,
      std::unique_ptr<rocksdb::FSSequentialFile>* file,
      rocksdb::IODebugContext* debug) override {
    rocksdb::IOStatus status =
        FileSystemWrapper::NewSequentialFile(path, options, file, debug);
    if (status.ok() && absl::EndsWith(path, path_end_)) {
      *file =
          std::make_unique<CutSequentialFile>(std::move(*file), size_bytes_);
    }
    return status;
  }

 private:
  const std::string path_end_;
  const uint64_t size_bytes_;
};

}  // namespace

rocksdb::WalFilter::WalProcessingOption IndexFilter::LogRecordFound(
    unsigned long long, const std::string&, const rocksdb::WriteBatch& batch,
    rocksdb::WriteBatch*, bool*) {
  KeyReader keys;
  has_batches_ = true;
  if (!batch.Iterate(&keys).ok()) {
    return WalProcessingOption::kCorruptedRecord;
  }
  if (last_.has_value()) {
    return keys.index.value_or(0) > *last_
               ? WalProcessingOption::kStopReplay
               : WalProcessingOption::kContinueProcessing;
  }
  if (keys.format.has_value()) format_ = keys.format;
  if (keys.index.has_value()) {
    if (!ranges_.empty() && ranges_.back().second + 1 == *keys.index) {
      ranges_.back().second = *keys.index;
    } else {
      ranges_.emplace_back(*keys.index, *keys.index);
    }
  }
  return WalProcessingOption::kIgnoreCurrentRecord;
}

int64_t IndexFilter::FindLast(int64_t table_index) const {
  int64_t last = table_index;
  for (const auto& [first, range_last] : ranges_) {
    if (first > last + 1) break;
    last = std::max(last, range_last);
  }
  return last;
}

int64_t MeasureWholeRecords(absl::string_view bytes) {
  constexpr size_t kBlockBytes = 32768;
  constexpr size_t kHeaderBytes = 7;  // Masked CRC-32C (4), length (2), type.
  constexpr int kFull = 1, kFirst = 2, kMiddle = 3, kLast = 4;
  const auto byte = [&bytes](size_t at) {
    return static_cast<uint32_t>(static_cast<uint8_t>(bytes[at]));
  };
  size_t at = 0;
  size_t end = 0;
  bool is_inside = false;
  while (true) {
    const size_t block_left = kBlockBytes - at % kBlockBytes;
    if (block_left < kHeaderBytes) {
      at += block_left;
      continue;
    }
    if (at + kHeaderBytes > bytes.size()) break;
    const uint32_t masked =
        byte(at) | byte(at + 1) << 8 | byte(at + 2) << 16 | byte(at + 3) << 24;
    const size_t length = byte(at + 4) | byte(at + 5) << 8;
    const int type = static_cast<int>(byte(at + 6));
    const bool begins = type == kFull || type == kFirst;
    const bool continues = type == kMiddle || type == kLast;
    if (!(is_inside ? continues : begins)) break;
    if (kHeaderBytes + length > block_left ||
        at + kHeaderBytes + length > bytes.size()) {
      break;
    }
    const uint32_t rotated = masked - 0xa282ead8u;
    const uint32_t crc = rotated >> 17 | rotated << 15;
    if (crc != codec::Crc32c(bytes.substr(at + 6, 1 + length))) break;
    at += kHeaderBytes + length;
    is_inside = type == kFirst || type == kMiddle;
    if (!is_inside) end = at;
  }
  return static_cast<int64_t>(end);
}

std::shared_ptr<rocksdb::FileSystem> CutFile(
    std::shared_ptr<rocksdb::FileSystem> files, std::string name,
    int64_t size_bytes) {
  return std::make_shared<CutFileSystem>(std::move(files), std::move(name),
                                         size_bytes);
}

}  // namespace atl::coordinator
